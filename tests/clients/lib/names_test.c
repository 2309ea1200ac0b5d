/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Property: names, attributes, directories and locks behave as POSIX says, also when the
 * directories are spread over reactors. Method: one client against servers in threads, MDS with 1
 * and 3 reactors.
 */
#include "tests/test.h"

#include "tests/support/cluster.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct bed {
    struct cluster *cluster;
    struct causeway *fs;
};

static int
set_up(void **state, uint32_t mds_reactors)
{
    const struct cluster_options options = {
        .mds_reactors = mds_reactors,
        .osts_per_oss = 2,
        .stripe_count = 2,
    };
    struct bed *bed = calloc(1, sizeof(*bed));

    *state = bed;
    return cluster_start(&options, &bed->cluster) != 0 ||
           cluster_mount(bed->cluster, NULL, &bed->fs) != 0;
}

static int
set_up_1(void **state)
{
    return set_up(state, 1);
}

static int
set_up_3(void **state)
{
    return set_up(state, 3);
}

static int
tear_down(void **state)
{
    struct bed *bed = *state;

    causeway_unmount(bed->fs);
    cluster_stop(bed->cluster);
    free(bed);
    return 0;
}

/* ---- helpers ---- */

static void
put(struct causeway *fs, const char *path, const char *text)
{
    struct causeway_file *file = NULL;
    const struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};

    assert_int_equal(causeway_open(fs, NULL, path, O_WRONLY | O_CREAT | O_TRUNC, 0644, &file), 0);
    assert_int_equal(causeway_pwritev(file, &iov, 1, 0, NULL), strlen(text));
    causeway_close(file);
}

static void
assert_text(struct causeway *fs, const char *path, const char *text)
{
    struct causeway_file *file = NULL;
    char buffer[256];
    const struct iovec iov = {.iov_base = buffer, .iov_len = sizeof(buffer)};

    assert_int_equal(causeway_open(fs, NULL, path, O_RDONLY, 0, &file), 0);
    assert_int_equal(causeway_preadv(file, &iov, 1, 0), strlen(text));
    assert_memory_equal(buffer, text, strlen(text));
    causeway_close(file);
}

static int
stat_of(struct causeway *fs, const char *path, struct stat *st)
{
    return causeway_stat(fs, NULL, path, CAUSEWAY_NOFOLLOW, st);
}

static int
exists(struct causeway *fs, const char *path)
{
    struct stat st;

    return stat_of(fs, path, &st) == 0;
}

/* ---- cases ---- */

static void
a_file_is_made_written_read_and_removed(void **state)
{
    struct causeway *fs = ((struct bed *)*state)->fs;
    struct stat st;

    put(fs, "file", "hello");
    assert_text(fs, "/file", "hello");
    assert_int_equal(stat_of(fs, "file", &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(st.st_mode & 07777, 0644);
    assert_int_equal(st.st_size, 5);
    assert_int_equal(st.st_nlink, 1);
    assert_int_equal(st.st_uid, geteuid());
    assert_true(st.st_blocks > 0);
    assert_int_equal(causeway_unlink(fs, NULL, "file"), 0);
    assert_int_equal(stat_of(fs, "file", &st), -ENOENT);
    assert_int_equal(causeway_unlink(fs, NULL, "file"), -ENOENT);
}

static void
directories_nest_and_refuse_what_posix_refuses(void **state)
{
    struct causeway *fs = ((struct bed *)*state)->fs;
    struct stat st;
    struct causeway_file *file = NULL;

    assert_int_equal(causeway_mkdir(fs, NULL, "a", 0755), 0);
    assert_int_equal(causeway_mkdir(fs, NULL, "a", 0755), -EEXIST);
    assert_int_equal(causeway_mkdir(fs, NULL, "a/b/", 0700), 0);
    assert_int_equal(causeway_mkdir(fs, NULL, "x/y", 0755), -ENOENT);
    put(fs, "a/b/f", "1");
    assert_int_equal(causeway_mkdir(fs, NULL, "a/b/f/g", 0755), -ENOTDIR);
    assert_int_equal(stat_of(fs, "a", &st), 0);
    assert_int_equal(st.st_nlink, 3);
    assert_int_equal(causeway_rmdir(fs, NULL, "a"), -ENOTEMPTY);
    assert_int_equal(causeway_rmdir(fs, NULL, "a/b/f"), -ENOTDIR);
    assert_int_equal(causeway_unlink(fs, NULL, "a/b"), -EISDIR);
    assert_int_equal(causeway_open(fs, NULL, "a/b", O_RDWR, 0, &file), -EISDIR);
    assert_int_equal(causeway_open(fs, NULL, "a/b/f", O_RDONLY | O_DIRECTORY, 0, &file), -ENOTDIR);
    assert_int_equal(causeway_open(fs, NULL, "a/b/f", O_RDWR | O_CREAT | O_EXCL, 0644, &file),
                     -EEXIST);
    assert_int_equal(causeway_open(fs, NULL, "a/b/n", O_RDWR, 0644, &file), -ENOENT);
    assert_int_equal(stat_of(fs, "a/b/../../a/./b/f", &st), 0);
    assert_int_equal(stat_of(fs, "../../a/b/f", &st), 0);
    assert_int_equal(stat_of(fs, "a/b/f/", &st), -ENOTDIR);
    assert_int_equal(causeway_unlink(fs, NULL, "a/b/f"), 0);
    assert_int_equal(causeway_rmdir(fs, NULL, "a/b"), 0);
    assert_int_equal(causeway_rmdir(fs, NULL, "a"), 0);
}

static void
names_start_from_a_fid_too(void **state)
{
    struct causeway *fs = ((struct bed *)*state)->fs;
    struct causeway_fid fid;
    mode_t mode = 0;
    struct stat st;

    assert_int_equal(causeway_mkdir(fs, NULL, "d", 0755), 0);
    assert_int_equal(causeway_lookup(fs, NULL, "d", 0, &fid, &mode), 0);
    assert_true(S_ISDIR(mode));
    assert_int_equal(causeway_mkdir(fs, &fid, "e", 0755), 0);
    assert_int_equal(causeway_stat(fs, &fid, "e", 0, &st), 0);
    assert_int_equal(causeway_stat(fs, &fid, "", 0, &st), 0);
    assert_int_equal(causeway_stat(fs, &fid, "/d/e", 0, &st), 0);
    assert_int_equal(causeway_stat(fs, &fid, "..", 0, &st), 0);
    assert_int_equal(st.st_ino, 1);
}

static void
symlinks_are_followed_relative_absolute_and_through_each_other(void **state)
{
    struct causeway *fs = ((struct bed *)*state)->fs;
    struct stat st;
    char text[16];
    struct causeway_file *file = NULL;

    assert_int_equal(causeway_mkdir(fs, NULL, "d", 0755), 0);
    assert_int_equal(causeway_mkdir(fs, NULL, "d/e", 0755), 0);
    put(fs, "d/e/f", "deep");
    assert_int_equal(causeway_symlink(fs, "d/e", NULL, "rel"), 0);
    assert_int_equal(causeway_symlink(fs, "/d", NULL, "d/e/abs"), 0);
    assert_int_equal(causeway_symlink(fs, "../f", NULL, "d/e/up"), 0);
    assert_int_equal(causeway_symlink(fs, "loop", NULL, "loop"), 0);
    assert_int_equal(causeway_symlink(fs, "nowhere", NULL, "dangling"), 0);
    assert_text(fs, "rel/f", "deep");
    assert_text(fs, "rel/abs/e/f", "deep");
    assert_text(fs, "rel/abs/e/abs/e/f", "deep");
    assert_int_equal(causeway_stat(fs, NULL, "rel/up", 0, &st), -ENOENT);
    assert_int_equal(causeway_stat(fs, NULL, "loop", 0, &st), -ELOOP);
    assert_int_equal(causeway_stat(fs, NULL, "rel", CAUSEWAY_NOFOLLOW, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(st.st_size, 3);
    assert_int_equal(causeway_stat(fs, NULL, "rel", 0, &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_int_equal(causeway_readlink(fs, NULL, "rel", text, sizeof(text)), 3);
    assert_memory_equal(text, "d/e", 3);
    assert_int_equal(causeway_readlink(fs, NULL, "rel", text, 2), 2);
    assert_int_equal(causeway_readlink(fs, NULL, "d", text, sizeof(text)), -EINVAL);
    assert_int_equal(causeway_open(fs, NULL, "rel/f", O_RDONLY | O_NOFOLLOW, 0, &file), 0);
    causeway_close(file);
    assert_int_equal(causeway_open(fs, NULL, "loop", O_RDONLY | O_NOFOLLOW, 0, &file), -ELOOP);
    assert_int_equal(causeway_open(fs, NULL, "dangling", O_WRONLY | O_CREAT | O_EXCL, 0644, &file),
                     -EEXIST);
    put(fs, "dangling", "now there");
    assert_text(fs, "nowhere", "now there");
    assert_int_equal(causeway_unlink(fs, NULL, "rel"), 0);
    assert_true(exists(fs, "d/e/f"));
}

static void
rename_does_all_that_posix_says(void **state)
{
    struct causeway *fs = ((struct bed *)*state)->fs;

    put(fs, "a", "A");
    put(fs, "b", "B");
    assert_int_equal(causeway_rename(fs, NULL, "a", NULL, "c", 0), 0);
    assert_false(exists(fs, "a"));
    assert_int_equal(causeway_rename(fs, NULL, "c", NULL, "b", RENAME_NOREPLACE), -EEXIST);
    assert_int_equal(causeway_rename(fs, NULL, "c", NULL, "b", RENAME_EXCHANGE), 0);
    assert_text(fs, "c", "B");
    assert_text(fs, "b", "A");
    assert_int_equal(causeway_rename(fs, NULL, "c", NULL, "b", 0), 0);
    assert_text(fs, "b", "B");
    assert_int_equal(causeway_mkdir(fs, NULL, "d", 0755), 0);
    assert_int_equal(causeway_mkdir(fs, NULL, "d/s", 0755), 0);
    assert_int_equal(causeway_mkdir(fs, NULL, "e", 0755), 0);
    assert_int_equal(causeway_rename(fs, NULL, "d", NULL, "d/s/d", 0), -EINVAL);
    assert_int_equal(causeway_rename(fs, NULL, "b", NULL, "d", 0), -EISDIR);
    assert_int_equal(causeway_rename(fs, NULL, "d", NULL, "b", 0), -ENOTDIR);
    assert_int_equal(causeway_rename(fs, NULL, "e", NULL, "d", 0), -ENOTEMPTY);
    assert_int_equal(causeway_rename(fs, NULL, "d", NULL, "e", 0), 0);
    assert_true(exists(fs, "e/s"));
    assert_int_equal(causeway_rename(fs, NULL, "b", NULL, "e/s/b", 0), 0);
    assert_text(fs, "e/s/b", "B");
    assert_int_equal(causeway_rename(fs, NULL, "e/s", NULL, "t", 0), 0);
    assert_text(fs, "t/b", "B");
    assert_text(fs, "t/../t/b", "B");
    assert_int_equal(causeway_rename(fs, NULL, "none", NULL, "x", 0), -ENOENT);
    assert_int_equal(causeway_rename(fs, NULL, "b", NULL, "x", 8), -EINVAL);
}

static void
hard_links_share_and_count(void **state)
{
    struct causeway *fs = ((struct bed *)*state)->fs;
    struct stat st;
    struct stat st2;

    put(fs, "one", "1");
    assert_int_equal(causeway_link(fs, NULL, "one", NULL, "two", 0), 0);
    assert_int_equal(stat_of(fs, "one", &st), 0);
    assert_int_equal(stat_of(fs, "two", &st2), 0);
    assert_int_equal(st.st_ino, st2.st_ino);
    assert_int_equal(st.st_nlink, 2);
    put(fs, "two", "second");
    assert_text(fs, "one", "second");
    assert_int_equal(causeway_link(fs, NULL, "one", NULL, "two", 0), -EEXIST);
    assert_int_equal(causeway_unlink(fs, NULL, "one"), 0);
    assert_text(fs, "two", "second");
    assert_int_equal(causeway_mkdir(fs, NULL, "d", 0755), 0);
    assert_int_equal(causeway_link(fs, NULL, "d", NULL, "e", 0), -EPERM);
}

static void
an_unlinked_file_lives_until_its_close(void **state)
{
    struct bed *bed = *state;
    struct causeway *fs = bed->fs;
    struct causeway_file *file = NULL;
    struct causeway_file *again = NULL;
    struct stat st;
    char text[4];
    const struct iovec iov = {.iov_base = text, .iov_len = 4};

    put(fs, "file", "data");
    assert_int_equal(causeway_open(fs, NULL, "file", O_RDWR, 0, &file), 0);
    assert_int_equal(causeway_unlink(fs, NULL, "file"), 0);
    assert_int_equal(causeway_fstat(file, &st), 0);
    assert_int_equal(st.st_nlink, 0);
    assert_int_equal(st.st_size, 4);
    const struct causeway_fid fid = causeway_file_fid(file);

    assert_int_equal(causeway_open_fid(fs, &fid, O_RDONLY, &again), 0);
    causeway_close(file);
    assert_int_equal(causeway_preadv(again, &iov, 1, 0), 4);
    assert_memory_equal(text, "data", 4);
    causeway_close(again);
    assert_int_equal(causeway_open_fid(fs, &fid, O_RDONLY, &again), -ESTALE);
}

static void
tmpfile_has_no_name_until_it_is_linked(void **state)
{
    struct causeway *fs = ((struct bed *)*state)->fs;
    struct causeway_file *file = NULL;
    char text[] = "tmp";
    const struct iovec iov = {.iov_base = text, .iov_len = 3};

    assert_int_equal(causeway_open(fs, NULL, "", O_RDWR | O_TMPFILE, 0600, &file), 0);
    assert_int_equal(causeway_pwritev(file, &iov, 1, 0, NULL), 3);
    const struct causeway_fid fid = causeway_file_fid(file);

    assert_int_equal(causeway_link(fs, &fid, "", NULL, "named", 0), 0);
    causeway_close(file);
    assert_text(fs, "named", "tmp");
}

static void
attributes_are_set_and_kept(void **state)
{
    struct causeway *fs = ((struct bed *)*state)->fs;
    struct stat st;
    struct causeway_attr attr = {.valid = CAUSEWAY_SET_MODE, .mode = 0604};

    put(fs, "f", "data");
    assert_int_equal(causeway_setattr(fs, NULL, "f", 0, &attr), 0);
    attr = (struct causeway_attr){
        .valid = CAUSEWAY_SET_MTIME | CAUSEWAY_SET_ATIME,
        .mtime = {.tv_sec = 1000, .tv_nsec = 5},
        .atime = {.tv_sec = -3, .tv_nsec = 7},
    };
    assert_int_equal(causeway_setattr(fs, NULL, "f", 0, &attr), 0);
    assert_int_equal(stat_of(fs, "f", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0604);
    assert_int_equal(st.st_mtim.tv_sec, 1000);
    assert_int_equal(st.st_mtim.tv_nsec, 5);
    assert_int_equal(st.st_atim.tv_sec, -3);
    assert_int_equal(st.st_atim.tv_nsec, 7);
    attr = (struct causeway_attr){.valid = CAUSEWAY_SET_MODE, .mode = 0600};
    assert_int_equal(causeway_setattr(fs, NULL, "f", 0, &attr), 0);
    assert_int_equal(stat_of(fs, "f", &st), 0);
    assert_int_equal(st.st_mtim.tv_sec, 1000);
    put(fs, "f", "more data");
    assert_int_equal(stat_of(fs, "f", &st), 0);
    assert_true(st.st_mtim.tv_sec > 1000000);
    assert_true(llabs((long long)time(NULL) - st.st_mtim.tv_sec) < 60);
    attr =
        (struct causeway_attr){.valid = CAUSEWAY_SET_UID | CAUSEWAY_SET_GID, .uid = 12, .gid = 13};
    if (geteuid() == 0) {
        assert_int_equal(causeway_setattr(fs, NULL, "f", 0, &attr), 0);
        assert_int_equal(stat_of(fs, "f", &st), 0);
        assert_int_equal(st.st_uid, 12);
        assert_int_equal(st.st_gid, 13);
    }
    attr = (struct causeway_attr){.valid = 1u << 20};
    assert_int_equal(causeway_setattr(fs, NULL, "f", 0, &attr), -EINVAL);
    attr = (struct causeway_attr){.valid = CAUSEWAY_SET_SIZE, .size = INT64_MAX};
    assert_int_equal(causeway_setattr(fs, NULL, "f", 0, &attr), -EFBIG);
}

static void
permissions_are_those_of_the_identity_set(void **state)
{
    struct causeway *fs = ((struct bed *)*state)->fs;
    struct causeway_file *file = NULL;

    if (geteuid() != 0) {
        skip();
    }
    put(fs, "f", "x");
    assert_int_equal(causeway_mkdir(fs, NULL, "d", 0700), 0);
    causeway_identity_set(fs, 1000, 1000);
    assert_int_equal(causeway_open(fs, NULL, "f", O_RDONLY, 0, &file), 0);
    causeway_close(file);
    assert_int_equal(causeway_open(fs, NULL, "f", O_WRONLY, 0, &file), -EACCES);
    assert_int_equal(causeway_access(fs, NULL, "f", R_OK, 0), 0);
    assert_int_equal(causeway_access(fs, NULL, "f", W_OK, 0), -EACCES);
    assert_int_equal(causeway_access(fs, NULL, "d/x", F_OK, 0), -EACCES);
    assert_int_equal(causeway_access(fs, NULL, "none", F_OK, 0), -ENOENT);
    causeway_identity_set(fs, 0, 0);
    assert_int_equal(causeway_access(fs, NULL, "f", R_OK | W_OK, 0), 0);
}

static void
readdir_shows_each_name_once_while_others_go(void **state)
{
    struct causeway *fs = ((struct bed *)*state)->fs;
    struct causeway_dirent entries[37];
    struct causeway_file *dir = NULL;
    static bool seen[1000];
    char name[64];
    uint64_t cookie = 0;
    uint32_t dots = 0;
    int count;

    (void)memset(seen, 0, sizeof(seen));
    assert_int_equal(causeway_mkdir(fs, NULL, "d", 0755), 0);
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(name, sizeof(name), "d/name-%d", i);
        assert_int_equal(causeway_mknod(fs, NULL, name, S_IFREG | 0600, 0), 0);
    }
    assert_int_equal(causeway_open(fs, NULL, "d", O_RDONLY | O_DIRECTORY, 0, &dir), 0);
    while ((count = causeway_readdir(dir, cookie, entries, 37)) > 0) {
        for (int i = 0; i < count; i++) {
            int number = -1;

            cookie = entries[i].cookie;
            if (entries[i].name[0] == '.') {
                dots++;
                continue;
            }
            assert_int_equal(sscanf(entries[i].name, "name-%d", &number), 1);
            assert_int_equal(entries[i].type, DT_REG);
            assert_false(seen[number]);
            seen[number] = true;
            (void)snprintf(name, sizeof(name), "d/name-%d", number);
            assert_int_equal(causeway_unlink(fs, NULL, name), 0);
        }
    }
    assert_int_equal(count, 0);
    assert_int_equal(dots, 2);
    for (int i = 0; i < 1000; i++) {
        assert_true(seen[i]);
    }
    causeway_close(dir);
    assert_int_equal(causeway_rmdir(fs, NULL, "d"), 0);
}

static void
names_have_255_bytes_and_paths_4095(void **state)
{
    struct causeway *fs = ((struct bed *)*state)->fs;
    char path[PATH_MAX + 8];
    char name[300];
    struct stat st;
    size_t at = 0;

    (void)memset(name, 'n', sizeof(name));
    name[256] = '\0';
    assert_int_equal(causeway_mkdir(fs, NULL, name, 0755), -ENAMETOOLONG);
    name[255] = '\0';
    assert_int_equal(causeway_mkdir(fs, NULL, name, 0755), 0);
    assert_int_equal(stat_of(fs, name, &st), 0);
    while (at + 5 < 4095u) {
        (void)memcpy(path + at, "././/", 5);
        at += 5;
    }
    while (at < 4095u) {
        path[at++] = '/';
    }
    path[at] = '\0';
    assert_int_equal(stat_of(fs, path, &st), 0);
    path[at++] = '/';
    path[at] = '\0';
    assert_int_equal(stat_of(fs, path, &st), -ENAMETOOLONG);
}

static void
locks_of_ranges_conflict_between_owners_only(void **state)
{
    struct causeway *fs = ((struct bed *)*state)->fs;
    struct causeway_file *file = NULL;
    struct causeway_lock lock = {.owner = 1, .start = 0, .end = 99, .type = F_WRLCK, .pid = 77};

    put(fs, "f", "x");
    assert_int_equal(causeway_open(fs, NULL, "f", O_RDWR, 0, &file), 0);
    assert_int_equal(causeway_lock(file, &lock, false), 0);
    assert_int_equal(causeway_lock(file, &lock, false), 0);
    lock.owner = 2;
    lock.start = 50;
    lock.end = UINT64_MAX;
    assert_int_equal(causeway_lock(file, &lock, false), -EAGAIN);
    assert_int_equal(causeway_lock(file, &lock, true), 0);
    assert_int_equal(lock.type, F_WRLCK);
    assert_int_equal(lock.pid, 77);
    assert_int_equal(lock.start, 0);
    assert_int_equal(lock.end, 99);
    lock = (struct causeway_lock){.owner = 1, .end = UINT64_MAX, .type = F_UNLCK};
    assert_int_equal(causeway_lock(file, &lock, false), 0);
    lock = (struct causeway_lock){.owner = 2, .start = 50, .end = 60, .type = F_RDLCK};
    assert_int_equal(causeway_lock(file, &lock, true), 0);
    assert_int_equal(lock.type, F_UNLCK);
    causeway_close(file);
}

static void
statfs_and_layout_tell_the_whole(void **state)
{
    struct causeway *fs = ((struct bed *)*state)->fs;
    struct causeway_statfs statfs;
    struct causeway_layout layout;
    struct causeway_file *file = NULL;
    struct causeway_attr attr = {
        .valid = CAUSEWAY_SET_STRIPE, .stripe_bytes = 131072, .stripe_count = 1};

    assert_int_equal(causeway_statfs(fs, &statfs), 0);
    assert_int_equal(statfs.ost_count, 2);
    assert_true(statfs.blocks > 0 && statfs.blocks_free <= statfs.blocks);
    assert_true(statfs.files > 0 && statfs.files_free < statfs.files);
    assert_int_equal(causeway_mkdir(fs, NULL, "d", 0755), 0);
    assert_int_equal(causeway_setattr(fs, NULL, "d", 0, &attr), 0);
    assert_int_equal(causeway_open(fs, NULL, "d/f", O_RDWR | O_CREAT, 0644, &file), 0);
    assert_int_equal(causeway_layout_get(file, &layout), 0);
    assert_int_equal(layout.stripe_bytes, 131072);
    assert_int_equal(layout.stripe_count, 1);
    causeway_close(file);
    assert_int_equal(causeway_open(fs, NULL, "f", O_RDWR | O_CREAT, 0644, &file), 0);
    assert_int_equal(causeway_layout_get(file, &layout), 0);
    assert_int_equal(layout.stripe_bytes, 65536);
    assert_int_equal(layout.stripe_count, 2);
    causeway_close(file);
    attr.stripe_bytes = 1000;
    assert_int_equal(causeway_setattr(fs, NULL, "d", 0, &attr), -EINVAL);
}

static void
closed_files_are_closed_at_the_server(void **state)
{
    struct bed *bed = *state;
    struct mds_stats stats;

    for (int i = 0; i < 300; i++) {
        struct causeway_file *file = NULL;

        assert_int_equal(causeway_open(bed->fs, NULL, "f", O_RDWR | O_CREAT, 0644, &file), 0);
        causeway_close(file);
    }
    assert_int_equal(causeway_unlink(bed->fs, NULL, "f"), 0);
    causeway_unmount(bed->fs);
    bed->fs = NULL;
    cluster_mds_stats(bed->cluster, &stats);
    assert_int_equal(stats.open_handles, 0);
    assert_int_equal(stats.orphans, 0);
}

#define CASES(setup)                                                                               \
    cmocka_unit_test_setup_teardown(a_file_is_made_written_read_and_removed, setup, tear_down),    \
        cmocka_unit_test_setup_teardown(directories_nest_and_refuse_what_posix_refuses, setup,     \
                                        tear_down),                                                \
        cmocka_unit_test_setup_teardown(names_start_from_a_fid_too, setup, tear_down),             \
        cmocka_unit_test_setup_teardown(                                                           \
            symlinks_are_followed_relative_absolute_and_through_each_other, setup, tear_down),     \
        cmocka_unit_test_setup_teardown(rename_does_all_that_posix_says, setup, tear_down),        \
        cmocka_unit_test_setup_teardown(hard_links_share_and_count, setup, tear_down),             \
        cmocka_unit_test_setup_teardown(an_unlinked_file_lives_until_its_close, setup, tear_down), \
        cmocka_unit_test_setup_teardown(tmpfile_has_no_name_until_it_is_linked, setup, tear_down), \
        cmocka_unit_test_setup_teardown(attributes_are_set_and_kept, setup, tear_down),            \
        cmocka_unit_test_setup_teardown(permissions_are_those_of_the_identity_set, setup,          \
                                        tear_down),                                                \
        cmocka_unit_test_setup_teardown(readdir_shows_each_name_once_while_others_go, setup,       \
                                        tear_down),                                                \
        cmocka_unit_test_setup_teardown(names_have_255_bytes_and_paths_4095, setup, tear_down),    \
        cmocka_unit_test_setup_teardown(locks_of_ranges_conflict_between_owners_only, setup,       \
                                        tear_down),                                                \
        cmocka_unit_test_setup_teardown(statfs_and_layout_tell_the_whole, setup, tear_down),       \
        cmocka_unit_test_setup_teardown(closed_files_are_closed_at_the_server, setup, tear_down)

static const struct CMUnitTest cases[] = {CASES(set_up_1), CASES(set_up_3)};

TEST_MAIN(cases)
