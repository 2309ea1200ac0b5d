/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory: memfds, regions of ours that peers may map, and those of theirs that we map.
 *
 * Every memfd is sealed against shrinking before it is passed on, and a received one is refused
 * without that seal: its pages cannot go away under us. What we make has all its pages from the
 * start, so that want of memory shows at once, as an error and not as a signal later.
 *
 * A region is told to every connected peer over the socket and mapped by it at once, untouched;
 * its page tables are filled in SHM_TOUCH_BYTES steps at the first copy (rma.c).
 */
#include "lnet/lnd/shm/ni.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#    define MADV_POPULATE_WRITE 23
#endif

#define SMALL_PAGE_BYTES UINT64_C(4096)
#define HUGE_PAGE_BYTES  (UINT64_C(2) << 20)
#define REGION_SLOT_BITS 8
static_assert(SHM_REGIONS_MAX == 1u << REGION_SLOT_BITS, "a region's slot fits its id");

/* ---- memfds -------------------------------------------------------------------------------- */

int
shm_memfd_make(const char *name, uint64_t bytes, int *fd_out, void **map_out)
{
    int rc = 0;
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0) {
        return -errno;
    }
    if (ftruncate(fd, (off_t)bytes) != 0 || fallocate(fd, 0, 0, (off_t)bytes) != 0) {
        rc = -errno;
        goto fail_close;
    }
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (map == MAP_FAILED) {
        rc = -errno;
        goto fail_close;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        rc = -errno;
        goto fail_unmap;
    }
    *fd_out = fd;
    *map_out = map;
    return 0;

fail_unmap:
    (void)munmap(map, bytes);
fail_close:
    (void)close(fd);
    return rc == -ENOSPC ? -ENOMEM : rc;
}

/* Maps at an address that huge pages can be used at. MAP_FAILED with errno. */
static void *
map_aligned(int fd, uint64_t bytes, int protection)
{
    if (bytes < HUGE_PAGE_BYTES) {
        return mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
    }
    /* Reserve more than needed, then put the file over an aligned part and give back the rest. */
    const uint64_t room_bytes = bytes + HUGE_PAGE_BYTES;
    uint8_t *room =
        mmap(NULL, room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (room == MAP_FAILED) {
        return MAP_FAILED;
    }
    const uint64_t before = base_align_up((uintptr_t)room, HUGE_PAGE_BYTES) - (uintptr_t)room;
    const uint64_t page_bytes = base_align_up(bytes, SMALL_PAGE_BYTES);
    void *map = mmap(room + before, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);

    if (map == MAP_FAILED) {
        const int error = errno;

        (void)munmap(room, room_bytes);
        errno = error;
        return MAP_FAILED;
    }
    if (before > 0) {
        (void)munmap(room, before);
    }
    if (room_bytes > before + page_bytes) {
        (void)munmap(room + before + page_bytes, room_bytes - before - page_bytes);
    }
    return map;
}

int
shm_memfd_map(int fd, uint64_t bytes, bool is_writable, bool may_be_huge, void **map_out)
{
    struct stat st;
    struct statfs fs;
    const int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &st) != 0 || st.st_size < 0 ||
        (uint64_t)st.st_size < bytes || fstatfs(fd, &fs) != 0) {
        return -EPROTO;
    }
    if (fs.f_type != TMPFS_MAGIC &&
        !(may_be_huge && fs.f_type == HUGETLBFS_MAGIC && st.st_blksize == HUGE_PAGE_BYTES &&
          bytes % HUGE_PAGE_BYTES == 0)) {
        return -EPROTO;
    }
    void *map = map_aligned(fd, bytes, is_writable ? PROT_READ | PROT_WRITE : PROT_READ);

    if (map == MAP_FAILED) {
        return -errno;
    }
    (void)madvise(map, bytes, MADV_HUGEPAGE);
    *map_out = map;
    return 0;
}

/* ---- our memory ---------------------------------------------------------------------------- */

static struct shm_mem *
mem_of(const struct lnet_lnd_mem *base)
{
    return (struct shm_mem *)(uintptr_t)base;
}

/* The bytes of the mapping that holds @address that lie in huge pages, by the kernel's word. */
static uint64_t
huge_bytes(const void *address)
{
    char line[512];
    uint64_t bytes = 0;
    bool is_ours = false;
    FILE *smaps = fopen("/proc/self/smaps", "re");

    if (smaps == NULL) {
        return 0;
    }
    while (fgets(line, sizeof(line), smaps) != NULL) {
        unsigned long first = 0;
        unsigned long last = 0;
        unsigned long kib = 0;

        if (sscanf(line, "%lx-%lx ", &first, &last) == 2) {
            if (is_ours) {
                break;
            }
            is_ours = (uintptr_t)address >= first && (uintptr_t)address < last;
        } else if (is_ours && (sscanf(line, "ShmemPmdMapped: %lu kB", &kib) == 1 ||
                               sscanf(line, "Shared_Hugetlb: %lu kB", &kib) == 1 ||
                               sscanf(line, "Private_Hugetlb: %lu kB", &kib) == 1)) {
            bytes += (uint64_t)kib * 1024;
        }
    }
    (void)fclose(smaps);
    return bytes;
}

/* Explicit huge pages, if there are enough. */
static int
region_map_hugetlb(struct shm_mem *mem, uint64_t bytes, uint32_t flags)
{
    const uint64_t length = base_align_up(bytes, HUGE_PAGE_BYTES);
    const int fd = memfd_create("causeway-region",
                                MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | MFD_HUGE_2MB);

    if (fd < 0) {
        return -errno;
    }
    const bool is_lazy = (flags & LNET_MEM_LAZY) != 0; /* the mapping itself reserves the pages */

    if (ftruncate(fd, (off_t)length) == 0 && (is_lazy || fallocate(fd, 0, 0, (off_t)length) == 0) &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
        void *map = map_aligned(fd, length, PROT_READ | PROT_WRITE);

        if (map != MAP_FAILED) {
            if (!is_lazy) {
                (void)madvise(map, length, MADV_POPULATE_WRITE);
            }
            mem->address = map;
            mem->length_bytes = length;
            mem->page_bytes = HUGE_PAGE_BYTES;
            mem->fd = fd;
            return 0;
        }
    }
    (void)close(fd);
    return -ENOMEM;
}

/* Normal pages, which the kernel may make huge. */
static int
region_map_normal(struct shm_mem *mem, uint64_t bytes, uint32_t flags)
{
    const uint64_t length = base_align_up(bytes, SMALL_PAGE_BYTES);
    int rc = 0;
    const int fd = memfd_create("causeway-region", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0) {
        return -errno;
    }
    if (ftruncate(fd, (off_t)length) != 0) {
        rc = -errno;
        goto fail_close;
    }
    void *map = map_aligned(fd, length, PROT_READ | PROT_WRITE);

    if (map == MAP_FAILED) {
        rc = -errno;
        goto fail_close;
    }
    /* By touching: fallocate() would take small pages, as it does not see the advice. */
    (void)madvise(map, length, MADV_HUGEPAGE);
    if ((flags & LNET_MEM_LAZY) == 0 && madvise(map, length, MADV_POPULATE_WRITE) != 0 &&
        (errno != EINVAL || fallocate(fd, 0, 0, (off_t)length) != 0)) {
        rc = -errno;
        goto fail_unmap;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        rc = -errno;
        goto fail_unmap;
    }
    mem->address = map;
    mem->length_bytes = length;
    /* Of pages that are yet to come nobody can say how large they will be. */
    mem->page_bytes = (flags & LNET_MEM_LAZY) == 0 &&
                              huge_bytes(map) >= (length & ~(HUGE_PAGE_BYTES - 1)) &&
                              length >= HUGE_PAGE_BYTES
                          ? HUGE_PAGE_BYTES
                          : SMALL_PAGE_BYTES;
    mem->fd = fd;
    return 0;

fail_unmap:
    (void)munmap(map, length);
fail_close:
    (void)close(fd);
    return rc;
}

/* Has every connected peer told what is in region slot @slot now. */
static void
region_say(struct shm_ni *ni, uint32_t slot)
{
    BASE_LIST_FOREACH(link, &ni->all) {
        struct shm_conn *conn = BASE_CONTAINER_OF(link, struct shm_conn, all_link);

        if (conn->state == SHM_CONN_UP) {
            conn->unsaid[slot / 64] |= UINT64_C(1) << (slot % 64);
            shm_conn_say(conn);
        }
    }
}

int
shm_mem_alloc(struct lnet_lnd_ni *base, uint64_t bytes, uint32_t flags,
              struct lnet_lnd_mem **mem_out, void **address_out)
{
    struct shm_ni *ni = shm_ni_of(base);
    uint32_t slot = 0;

    if (bytes == 0 || bytes > SHM_REGION_BYTES_MAX) {
        return -EINVAL;
    }
    while (slot < SHM_REGIONS_MAX && ni->regions[slot] != NULL) {
        slot++;
    }
    if (slot == SHM_REGIONS_MAX) {
        shm_ni_log(ni, LNET_LOG_ERROR, "memory: %u regions are allocated, no more are possible",
                   SHM_REGIONS_MAX);
        return -ENOMEM;
    }
    struct shm_mem *mem = calloc(1, sizeof(*mem));

    if (mem == NULL) {
        return -ENOMEM;
    }
    int rc = bytes >= HUGE_PAGE_BYTES ? region_map_hugetlb(mem, bytes, flags) : -ENOMEM;

    if (rc != 0) {
        rc = region_map_normal(mem, bytes, flags);
    }
    if (rc != 0) {
        shm_ni_log(ni, LNET_LOG_ERROR, "memory: %llu bytes of shared memory: %s",
                   (unsigned long long)bytes, base_errno_name(rc));
        free(mem);
        return rc == -ENOSPC || rc == -EFAULT || rc == -EMFILE ? -ENOMEM : rc;
    }
    ni->region_generations[slot] = (ni->region_generations[slot] + 1) & 0xffffff;
    if (ni->region_generations[slot] == 0) {
        ni->region_generations[slot] = 1;
    }
    mem->base.ni = base;
    mem->id = ni->region_generations[slot] << REGION_SLOT_BITS | slot;
    ni->regions[slot] = mem;
    region_say(ni, slot);
    *mem_out = &mem->base;
    *address_out = mem->address;
    return 0;
}

int
shm_mem_register(struct lnet_lnd_ni *base, void *address, uint64_t bytes,
                 struct lnet_lnd_mem **mem_out)
{
    if (address == NULL || bytes == 0 || (uintptr_t)address + bytes < bytes) {
        return -EINVAL;
    }
    struct shm_mem *mem = calloc(1, sizeof(*mem));

    if (mem == NULL) {
        return -ENOMEM;
    }
    mem->base.ni = base;
    mem->address = address;
    mem->length_bytes = bytes;
    mem->page_bytes = SMALL_PAGE_BYTES;
    mem->fd = -1;
    *mem_out = &mem->base;
    return 0;
}

void
shm_mem_release(struct lnet_lnd_mem *base)
{
    struct shm_mem *mem = mem_of(base);
    struct shm_ni *ni = shm_ni_of(base->ni);

    if (mem->id != 0) {
        const uint32_t slot = mem->id % SHM_REGIONS_MAX;

        BASE_ASSERT(ni->regions[slot] == mem);
        ni->regions[slot] = NULL;
        if (getpid() == ni->os_pid) {
            region_say(ni, slot);
        }
        (void)munmap(mem->address, mem->length_bytes);
        (void)close(mem->fd);
    }
    free(mem);
}

uint64_t
shm_mem_page_bytes(const struct lnet_lnd_mem *base)
{
    return mem_of(base)->page_bytes;
}

/* ---- the peers' regions -------------------------------------------------------------------- */

static void
region_unmap(struct shm_conn *conn, struct shm_peer_region *region)
{
    if (region->address != NULL) {
        (void)munmap(region->address, region->length_bytes);
        conn->regions_mapped_bytes -= region->length_bytes;
        free(region->touched);
        *region = (struct shm_peer_region){0};
    }
}

/* Makes conn->regions long enough for @slot. */
static int
regions_grow(struct shm_conn *conn, uint32_t slot)
{
    if (slot < conn->region_count) {
        return 0;
    }
    const uint32_t count = (slot + 8) & ~7u;
    struct shm_peer_region *regions = realloc(conn->regions, count * sizeof(*regions));

    if (regions == NULL) {
        return -ENOMEM;
    }
    (void)memset(regions + conn->region_count, 0, (count - conn->region_count) * sizeof(*regions));
    conn->regions = regions;
    conn->region_count = count;
    return 0;
}

int
shm_region_update(struct shm_conn *conn, const struct shm_region_info *info, int fd)
{
    const uint32_t slot = info->id % SHM_REGIONS_MAX;
    const uint64_t length = info->length_bytes;
    void *map = NULL;

    if (fd < 0) {
        if (slot < conn->region_count) {
            region_unmap(conn, &conn->regions[slot]);
        }
        return 0;
    }
    if (info->id >> REGION_SLOT_BITS == 0 || length == 0 || length > SHM_REGION_BYTES_MAX) {
        return -EPROTO;
    }
    int rc = regions_grow(conn, slot);

    if (rc != 0) {
        return rc;
    }
    struct shm_peer_region *region = &conn->regions[slot];

    region_unmap(conn, region);
    if (conn->regions_mapped_bytes + length > SHM_PEER_MAPPED_MAX) {
        return -EPROTO;
    }
    const uint64_t steps = (length + SHM_TOUCH_BYTES - 1) / SHM_TOUCH_BYTES;
    uint64_t *touched = calloc((steps + 63) / 64, sizeof(*touched));

    if (touched == NULL) {
        return -ENOMEM;
    }
    rc = shm_memfd_map(fd, length, true, !conn->link.is_foreign, &map);
    if (rc != 0) {
        free(touched);
        return rc;
    }
    *region = (struct shm_peer_region){
        .address = map, .length_bytes = length, .touched = touched, .id = info->id};
    conn->regions_mapped_bytes += length;
    return 0;
}

void
shm_regions_drop(struct shm_conn *conn)
{
    for (uint32_t i = 0; i < conn->region_count; i++) {
        region_unmap(conn, &conn->regions[i]);
    }
    free(conn->regions);
    conn->regions = NULL;
    conn->region_count = 0;
}
