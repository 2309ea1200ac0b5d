/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Entry points become jumps. See patch.h.
 *
 * Five bytes are overwritten: a jump to a stub within 2 GiB of libc, and the stub jumps to the
 * hook, wherever that is.
 */
#include "clients/preload/patch.h"

#include "clients/preload/raw.h"

#include <dlfcn.h>
#include <elf.h>
#include <gnu/lib-names.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)

#    define STUB_BYTES    16
#    define JUMP_BYTES    5
#    define ALIGNMENT     UINT64_C(16) /* of functions */
#    define UNNAMED_BYTES 64           /* of that function, up to its system call */
#    define PAGE_BYTES    UINT64_C(4096)

/* libc's text, where the entry points are. */
struct text {
    uintptr_t begin, end;
};

static int
find_text(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct text *text = arg;

    (void)size;
    if (info->dlpi_name == NULL || strstr(info->dlpi_name, "/" LIBC_SO) == NULL) {
        return 0;
    }
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];

        if (header->p_type == PT_LOAD && (header->p_flags & PF_X) != 0) {
            text->begin = info->dlpi_addr + (header->p_vaddr & ~(PAGE_BYTES - 1));
            text->end = info->dlpi_addr + header->p_vaddr + header->p_memsz;
            text->end = (text->end + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
            return 1;
        }
    }
    return 0;
}

/* Memory for stubs that a 32-bit jump from @text reaches. */
static uint8_t *
map_stubs(const struct text *text, size_t bytes)
{
    for (uintptr_t distance = UINT64_C(1) << 24; distance < UINT64_C(1) << 30;
         distance += 1 << 24) {
        const uintptr_t at = text->begin - distance;
        void *memory = (void *)RAW(mmap, at, bytes, PROT_READ | PROT_WRITE | PROT_EXEC,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

        if (memory != MAP_FAILED) {
            return memory;
        }
    }
    return NULL;
}

static void
write_stub(uint8_t *stub, void *hook)
{
    static const uint8_t jump[6] = {0xff, 0x25, 0, 0, 0, 0}; /* jmp *0(%rip): the address follows */

    memcpy(stub, jump, sizeof(jump));
    memcpy(stub + sizeof(jump), &hook, sizeof(hook));
}

static void
write_jump(uint8_t *at, const uint8_t *stub)
{
    const int32_t distance = (int32_t)(stub - (at + JUMP_BYTES));

    at[0] = 0xe9;
    memcpy(at + 1, &distance, sizeof(distance));
}

/* The function behind "__open64_nocancel", if it is the system call openat; else NULL. */
static uint8_t *
find_unnamed_openat(void *libc)
{
    static const uint8_t openat_call[] = {0xb8, 1, 1, 0, 0, 0x0f, 0x05};
    uint8_t *before = dlsym(libc, "__open64_nocancel");
    void *extra = NULL;
    Dl_info info;

    if (before == NULL || dladdr1(before, &info, &extra, RTLD_DL_SYMENT) == 0 || extra == NULL) {
        return NULL;
    }
    const ElfW(Sym) *symbol = extra;
    uint8_t *entry = before + ((symbol->st_size + ALIGNMENT - 1) & ~(ALIGNMENT - 1));
    return memmem(entry, UNNAMED_BYTES, openat_call, sizeof(openat_call)) != NULL ? entry : NULL;
}

static uint8_t *
find_entry(void *libc, const struct patch *patch)
{
    if (strcmp(patch->name, PATCH_OPENAT_UNNAMED) == 0) {
        return find_unnamed_openat(libc);
    }
    return patch->version != NULL ? dlvsym(libc, patch->name, patch->version)
                                  : dlsym(libc, patch->name);
}

int
patch_libc(const struct patch *patches, size_t count)
{
    struct text text = {0};
    const size_t stub_bytes = (count * STUB_BYTES + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    void *libc = dlopen(LIBC_SO, RTLD_LAZY | RTLD_NOLOAD);

    if (libc == NULL || dl_iterate_phdr(find_text, &text) == 0) {
        return -ENOENT;
    }
    uint8_t *stubs = map_stubs(&text, stub_bytes);
    if (stubs == NULL) {
        return -ENOMEM;
    }
    if (RAW(mprotect, text.begin, text.end - text.begin, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
        return -EACCES;
    }
    for (size_t i = 0; i < count; i++) {
        uint8_t *entry = find_entry(libc, &patches[i]);

        if (entry == NULL || (uintptr_t)entry < text.begin || (uintptr_t)entry >= text.end ||
            entry[0] == 0xe9) {
            continue;
        }
        write_stub(stubs + i * STUB_BYTES, patches[i].hook);
        write_jump(entry, stubs + i * STUB_BYTES);
    }
    (void)RAW(mprotect, stubs, stub_bytes, PROT_READ | PROT_EXEC);
    (void)RAW(mprotect, text.begin, text.end - text.begin, PROT_READ | PROT_EXEC);
    return 0;
}

#else

int
patch_libc(const struct patch *patches, size_t count)
{
    (void)patches;
    (void)count;
    return -EOPNOTSUPP;
}

#endif
