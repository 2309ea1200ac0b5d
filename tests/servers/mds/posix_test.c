/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MDS's requests answer as POSIX and Linux say. Scripts of operations with the errno each must
 * end with, run at 1, 2 and 4 reactors; the invariants of the core are walked after each script.
 */
#include "tests/servers/mds/rig.h"

#include "tests/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum op {
    MKDIR,
    MKNOD, /* number: mode */
    CREAT,
    SYMLINK, /* from: target */
    LINK,
    UNLINK,
    RMDIR,
    RENAME, /* number: flags */
    STAT,
    LSTAT,
    READLINK,
    CHMOD,  /* number: mode */
    ACCESS, /* number: mask */
    OPEN,   /* number: open flags; closed at once */
    USER,   /* number: uid and gid from now on */
    NLINK,  /* number: what lstat must say */
    SETSIZE,
};

struct step {
    enum op op;
    const char *from;
    const char *to;
    uint32_t number;
    int expect; /* errno */
};

#define X32  "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define X256 X32 X32 X32 X32 X32 X32 X32 X32

static int
step_run(struct rig *rig, const struct step *step)
{
    const struct mds_setattr_req size = {.valid = MDS_SET_SIZE, .size = step->number};

    switch (step->op) {
    case MKDIR:
        return rig_mkdir(rig, step->from, step->number == 0 ? 0755 : step->number);
    case MKNOD:
        return rig_mknod(rig, step->from, step->number);
    case CREAT:
        return rig_creat(rig, step->from);
    case SYMLINK:
        return rig_symlink(rig, step->from, step->to);
    case LINK:
        return rig_link(rig, step->from, step->to);
    case UNLINK:
        return rig_unlink(rig, step->from);
    case RMDIR:
        return rig_rmdir(rig, step->from);
    case RENAME:
        return rig_rename(rig, step->from, step->to, step->number);
    case STAT:
        return rig_stat(rig, step->from);
    case LSTAT:
        return rig_lstat(rig, step->from);
    case READLINK:
        return rig_readlink(rig, step->from);
    case CHMOD:
        return rig_chmod(rig, step->from, step->number);
    case ACCESS:
        return rig_access(rig, step->from, step->number);
    case OPEN: {
        const int rc = rig_open_file(rig, step->from, step->number, MDS_FOLLOW, 0644);

        return rc != 0 ? rc : rig_close_file(rig, &rig->attr.fid, rig->handle, 0);
    }
    case USER:
        rig->uid = step->number;
        rig->gid = step->number;
        return 0;
    case NLINK:
        assert_int_equal(rig_lstat(rig, step->from), 0);
        if (rig->attr.nlink != step->number) {
            print_error("%s: nlink %u\n", step->from, rig->attr.nlink);
        }
        assert_int_equal(rig->attr.nlink, step->number);
        return 0;
    case SETSIZE:
        return rig_setattr(rig, step->from, &size);
    }
    return -1;
}

static void
script_run(const struct step *steps, size_t count)
{
    static const uint32_t reactors[] = {1, 2, 4};

    for (size_t r = 0; r < BASE_ARRAY_LEN(reactors); r++) {
        static struct rig rig;

        rig = (struct rig){.osts = 3};
        rig_open(&rig, reactors[r], r + 1);
        for (size_t i = 0; i < count; i++) {
            const int rc = step_run(&rig, &steps[i]);

            if (rc != -steps[i].expect) {
                print_error("%u reactors, step %zu (%s %s): %d, not %d\n", reactors[r], i,
                            steps[i].from, steps[i].to == NULL ? "" : steps[i].to, rc,
                            -steps[i].expect);
            }
            assert_int_equal(rc, -steps[i].expect);
            while (rig_pump(&rig, 1)) {
            }
            rig_check(&rig);
        }
        rig_close(&rig);
    }
}

#define RUN(...)                                          \
    do {                                                  \
        static const struct step steps[] = {__VA_ARGS__}; \
        script_run(steps, BASE_ARRAY_LEN(steps));         \
    } while (0)

static void
directories_are_made_and_removed(void **state)
{
    RUN({MKDIR, "a"}, {MKDIR, "a", .expect = EEXIST}, {MKDIR, "a/b/"}, {MKDIR, "a//b//c"},
        {NLINK, "a", .number = 3}, {NLINK, "", .number = 3}, {NLINK, "a/b", .number = 3},
        {RMDIR, "a", .expect = ENOTEMPTY}, {RMDIR, "a/b/c/.", .expect = EINVAL},
        {RMDIR, "a/b/..", .expect = ENOTEMPTY}, {RMDIR, "a/b/c/"}, {RMDIR, "a/b"},
        {NLINK, "a", .number = 2}, {RMDIR, "a"}, {RMDIR, "a", .expect = ENOENT},
        {RMDIR, "", .expect = EBUSY}, {MKDIR, "x/y", .expect = ENOENT}, {CREAT, "f"},
        {MKDIR, "f/y", .expect = ENOTDIR}, {RMDIR, "f", .expect = ENOTDIR},
        {RMDIR, "f/", .expect = ENOTDIR}, {MKDIR, ".", .expect = EEXIST},
        {MKDIR, "f", .expect = EEXIST}, {MKDIR, "f/", .expect = EEXIST},
        {MKDIR, "", .expect = EEXIST});
}

static void
paths_are_walked_by_dots_and_slashes(void **state)
{
    RUN({MKDIR, "a"}, {MKDIR, "a/b"}, {CREAT, "a/b/f"}, {STAT, "a/./b/../b//f"},
        {STAT, "../../a/b/f"}, {STAT, "a/b/f/", .expect = ENOTDIR},
        {STAT, "a/b/f/.", .expect = ENOTDIR}, {STAT, "a/b/f/..", .expect = ENOTDIR}, {STAT, "a/b/"},
        {STAT, "a/b/."}, {STAT, "a/b/.."}, {STAT, "a/x/..", .expect = ENOENT},
        {STAT, "a/b/f/x", .expect = ENOTDIR}, {STAT, "..a", .expect = ENOENT}, {CREAT, "..a"},
        {STAT, "..a"}, {CREAT, ".b"}, {STAT, ".b"}, {CREAT, "..."}, {STAT, "..."}, {UNLINK, "..."});
}

static void
names_have_255_bytes_at_most_in_every_call(void **state)
{
    const char *const longest = &X256[1];
    static const char in_dir[] = "d/" X256;

    assert_int_equal(strlen(X256), 256);
    const struct step steps[] = {
        {MKDIR, longest},
        {STAT, longest},
        {RMDIR, longest},
        {CREAT, longest},
        {RENAME, longest, "short"},
        {RENAME, "short", longest},
        {LINK, longest, "other"},
        {UNLINK, longest},
        {SYMLINK, "x", longest},
        {READLINK, longest},
        {UNLINK, longest},
        {MKDIR, "d"},
        {MKDIR, X256, .expect = ENAMETOOLONG},
        {CREAT, X256, .expect = ENAMETOOLONG},
        {OPEN, X256, .number = MDS_OPEN_READ, .expect = ENAMETOOLONG},
        {STAT, X256, .expect = ENAMETOOLONG},
        {LSTAT, in_dir, .expect = ENAMETOOLONG},
        {STAT, X256 "/x", .expect = ENAMETOOLONG},
        {UNLINK, X256, .expect = ENAMETOOLONG},
        {RMDIR, in_dir, .expect = ENAMETOOLONG},
        {RENAME, X256, "x", .expect = ENAMETOOLONG},
        {RENAME, "other", in_dir, .expect = ENAMETOOLONG},
        {LINK, "other", X256, .expect = ENAMETOOLONG},
        {LINK, X256, "x", .expect = ENAMETOOLONG},
        {SYMLINK, "x", X256, .expect = ENAMETOOLONG},
        {READLINK, X256, .expect = ENAMETOOLONG},
        {CHMOD, X256, .number = 0600, .expect = ENAMETOOLONG},
        {ACCESS, X256, .expect = ENAMETOOLONG},
        {SETSIZE, X256, .expect = ENAMETOOLONG},
        {MKNOD, X256, .number = S_IFIFO | 0600, .expect = ENAMETOOLONG},
    };

    script_run(steps, BASE_ARRAY_LEN(steps));
}

static void
any_bytes_but_slash_and_nul_make_a_name(void **state)
{
    RUN({CREAT, "new\nline"}, {STAT, "new\nline"}, {CREAT, "\"'\\ "}, {STAT, "\"'\\ "},
        {CREAT, "\xff\xfe"}, {STAT, "\xff\xfe"}, {CREAT, "\xe2\x82\xac"}, {STAT, "\xe2\x82\xac"},
        {STAT, "\xe2\x82", .expect = ENOENT}, {RENAME, "\xff\xfe", "\xf0\x9f\x98\x80"},
        {UNLINK, "\xf0\x9f\x98\x80"}, {UNLINK, "\xe2\x82\xac"});
}

static void
files_are_opened_and_made_as_the_flags_say(void **state)
{
    RUN({OPEN, "f", .number = MDS_OPEN_READ, .expect = ENOENT},
        {OPEN, "f", .number = MDS_OPEN_READ | MDS_OPEN_CREATE},
        {OPEN, "f", .number = MDS_OPEN_READ | MDS_OPEN_CREATE},
        {OPEN, "f", .number = MDS_OPEN_READ | MDS_OPEN_CREATE | MDS_OPEN_EXCL, .expect = EEXIST},
        {OPEN, "f", .number = MDS_OPEN_READ | MDS_OPEN_DIRECTORY, .expect = ENOTDIR},
        {OPEN, "f/", .number = MDS_OPEN_READ, .expect = ENOTDIR},
        {OPEN, "g/", .number = MDS_OPEN_WRITE | MDS_OPEN_CREATE, .expect = EISDIR}, {MKDIR, "d"},
        {OPEN, "d", .number = MDS_OPEN_READ},
        {OPEN, "d", .number = MDS_OPEN_READ | MDS_OPEN_DIRECTORY},
        {OPEN, "d", .number = MDS_OPEN_WRITE, .expect = EISDIR},
        {OPEN, "d", .number = MDS_OPEN_READ | MDS_OPEN_CREATE, .expect = EISDIR},
        {OPEN, "d", .number = MDS_OPEN_READ | MDS_OPEN_CREATE | MDS_OPEN_EXCL, .expect = EEXIST},
        {OPEN, "d/.", .number = MDS_OPEN_READ | MDS_OPEN_CREATE, .expect = EISDIR},
        {OPEN, "x/f", .number = MDS_OPEN_READ | MDS_OPEN_CREATE, .expect = ENOENT},
        {OPEN, "f/f", .number = MDS_OPEN_READ | MDS_OPEN_CREATE, .expect = ENOTDIR},
        {OPEN, "d", .number = MDS_OPEN_WRITE | MDS_OPEN_TMPFILE},
        {OPEN, "d", .number = MDS_OPEN_READ | MDS_OPEN_TMPFILE, .expect = EINVAL},
        {OPEN, "f", .number = MDS_OPEN_WRITE | MDS_OPEN_TMPFILE, .expect = ENOTDIR},
        {OPEN, "f", .number = MDS_OPEN_PATH},
        {OPEN, "f", .number = MDS_OPEN_CREATE, .expect = EINVAL},
        {OPEN, "f", .number = 1u << 20, .expect = EINVAL});
}

static void
symlinks_are_followed_where_they_must_be(void **state)
{
    RUN({MKDIR, "d"}, {CREAT, "d/f"}, {SYMLINK, "d", "l"}, {SYMLINK, "d/f", "lf"},
        {SYMLINK, "/d/f", "d/abs"}, {SYMLINK, "nowhere", "dangling"}, {SYMLINK, "loop", "loop"},
        {SYMLINK, "", "empty", .expect = ENOENT}, {STAT, "l/f"}, {STAT, "d/abs"}, {STAT, "l/"},
        {LSTAT, "l/"}, {STAT, "loop", .expect = ELOOP}, {LSTAT, "loop"},
        {STAT, "dangling", .expect = ENOENT}, {LSTAT, "dangling"}, {STAT, "lf/", .expect = ENOTDIR},
        {READLINK, "l"}, {READLINK, "d", .expect = EINVAL}, {READLINK, "d/f", .expect = EINVAL},
        {OPEN, "dangling", .number = MDS_OPEN_WRITE | MDS_OPEN_CREATE | MDS_OPEN_EXCL,
         .expect = EEXIST},
        {OPEN, "dangling", .number = MDS_OPEN_WRITE | MDS_OPEN_CREATE}, {STAT, "nowhere"},
        {RMDIR, "l", .expect = ENOTDIR}, {RMDIR, "l/", .expect = ENOTDIR},
        {MKDIR, "dangling", .expect = EEXIST}, {UNLINK, "l/", .expect = ENOTDIR},
        {RENAME, "lf", "d/lf2"}, {LSTAT, "d/lf2"}, {STAT, "d/lf2", .expect = ENOENT},
        {CHMOD, "l", .number = 0700}, {UNLINK, "l"}, {STAT, "d/f"}, {UNLINK, "loop"},
        {SYMLINK, "x", "d", .expect = EEXIST}, {SYMLINK, "x", "n/", .expect = ENOENT});
}

static void
names_are_unlinked(void **state)
{
    RUN({UNLINK, "f", .expect = ENOENT}, {CREAT, "f"}, {UNLINK, "f/", .expect = ENOTDIR},
        {MKDIR, "d"}, {UNLINK, "d", .expect = EISDIR}, {UNLINK, "d/", .expect = EISDIR},
        {UNLINK, "d/.", .expect = EISDIR}, {UNLINK, "", .expect = EISDIR}, {UNLINK, "f"},
        {STAT, "f", .expect = ENOENT}, {MKNOD, "p", .number = S_IFIFO | 0600}, {STAT, "p"},
        {UNLINK, "p"}, {MKNOD, "b", .number = S_IFBLK | 0600, .expect = EPERM},
        {MKNOD, "b", .number = S_IFREG | 0600},
        {MKNOD, "c/", .number = S_IFREG | 0600, .expect = ENOENT},
        {MKNOD, "c", .number = 0600, .expect = EINVAL},
        {MKNOD, "c", .number = 1u << 20, .expect = EINVAL});
}

static void
files_have_several_names(void **state)
{
    RUN({CREAT, "f"}, {MKDIR, "d"}, {MKDIR, "e"}, {LINK, "f", "d/g"}, {NLINK, "f", .number = 2},
        {LINK, "f", "d/g", .expect = EEXIST}, {LINK, "d", "x", .expect = EPERM},
        {LINK, "f", "x/y", .expect = ENOENT}, {LINK, "n", "x", .expect = ENOENT},
        {LINK, "f", "x/", .expect = ENOENT}, {LINK, "f/", "x", .expect = ENOTDIR},
        {LINK, "f", "d/g/h", .expect = ENOTDIR}, {LINK, "d/g", "e/h"}, {NLINK, "e/h", .number = 3},
        {UNLINK, "f"}, {NLINK, "d/g", .number = 2}, {RENAME, "d/g", "e/h"}, {STAT, "d/g"},
        {UNLINK, "d/g"}, {NLINK, "e/h", .number = 1}, {SYMLINK, "e/h", "l"}, {LINK, "l", "l2"},
        {LSTAT, "l2"}, {NLINK, "l", .number = 2}, {UNLINK, "l"}, {READLINK, "l2"},
        {LINK, "e/h", ".", .expect = EEXIST});
}

static void
files_are_renamed(void **state)
{
    RUN({CREAT, "a"}, {RENAME, "a", "b"}, {STAT, "a", .expect = ENOENT}, {STAT, "b"},
        {RENAME, "a", "b", .expect = ENOENT}, {CREAT, "a"}, {RENAME, "a", "b"}, {RENAME, "b", "b"},
        {MKDIR, "d"}, {RENAME, "b", "d", .expect = EISDIR}, {RENAME, "b", "d/b"}, {STAT, "d/b"},
        {STAT, "b", .expect = ENOENT}, {RENAME, "d/b", "x/b", .expect = ENOENT},
        {RENAME, "d/b", "b/", .expect = ENOTDIR}, {RENAME, "d/b/", "b", .expect = ENOTDIR},
        {RENAME, "d/b", "d/b/c", .expect = ENOTDIR}, {RENAME, "d/.", "e", .expect = EBUSY},
        {RENAME, "d/..", "e", .expect = EBUSY}, {RENAME, "d", "d/.", .expect = EBUSY},
        {RENAME, "", "e", .expect = EBUSY}, {CREAT, "c"},
        {RENAME, "c", "d/b", .number = MDS_RENAME_NOREPLACE, .expect = EEXIST},
        {RENAME, "c", "d/c", .number = MDS_RENAME_NOREPLACE}, {CREAT, "c"}, {RENAME, "c", "d/c"},
        {STAT, "c", .expect = ENOENT},
        {RENAME, "d/b", "d/c", .number = MDS_RENAME_NOREPLACE | MDS_RENAME_EXCHANGE,
         .expect = EINVAL},
        {RENAME, "d/b", "d/c", .number = 1u << 30, .expect = EINVAL}, {RENAME, "d/b", "d/c"},
        {RMDIR, "d", .expect = ENOTEMPTY}, {UNLINK, "d/c"}, {RMDIR, "d"}, {NLINK, "", .number = 2});
}

static void
directories_are_renamed(void **state)
{
    RUN({MKDIR, "a"}, {MKDIR, "b"}, {MKDIR, "a/c"}, {CREAT, "a/c/f"}, {NLINK, "", .number = 4},
        {RENAME, "a/c", "b/c"}, {NLINK, "a", .number = 2}, {NLINK, "b", .number = 3},
        {STAT, "b/c/f"}, {STAT, "b/c/../c/f"}, {STAT, "b/c/../../a"},
        {RENAME, "b", "b/c/d", .expect = EINVAL}, {RENAME, "b", "b/d", .expect = EINVAL},
        {RENAME, "b", "b/c", .expect = EINVAL}, {RENAME, "b/c", "b", .expect = ENOTEMPTY},
        {RENAME, "a", "b", .expect = ENOTEMPTY}, {RENAME, "b/c", "a"}, {STAT, "a/f"},
        {NLINK, "b", .number = 2}, {NLINK, "", .number = 4}, {RENAME, "a/", "b/"}, {STAT, "b/f"},
        {NLINK, "", .number = 3}, {CREAT, "g"}, {RENAME, "b", "g", .expect = ENOTDIR},
        {RENAME, "g", "b", .expect = EISDIR}, {RENAME, "b/", "new/"}, {STAT, "new/f"},
        {RENAME, "new", "new"}, {MKDIR, "x"}, {MKDIR, "x/y"}, {MKDIR, "x/y/z"},
        {RENAME, "new", "x/y/z"}, {STAT, "x/y/z/f"}, {RENAME, "x/y/z", "x/z"},
        {NLINK, "x", .number = 4}, {NLINK, "x/y", .number = 2},
        {RENAME, "x", "x/z/w", .expect = EINVAL}, {STAT, "x/z/../y"});
}

static void
names_are_exchanged(void **state)
{
    RUN({MKDIR, "d"}, {CREAT, "d/in"}, {CREAT, "f"}, {MKDIR, "e"},
        {RENAME, "d", "f", .number = MDS_RENAME_EXCHANGE}, {STAT, "f/in"},
        {OPEN, "d", .number = MDS_OPEN_WRITE}, {NLINK, "", .number = 4},
        {RENAME, "d", "e/x", .number = MDS_RENAME_EXCHANGE, .expect = ENOENT},
        {RENAME, "d", "f/in", .number = MDS_RENAME_EXCHANGE}, {MKDIR, "f/sub"},
        {RENAME, "d", "f/sub", .number = MDS_RENAME_EXCHANGE}, {NLINK, "f", .number = 2},
        {NLINK, "", .number = 5}, {STAT, "d/.."}, {STAT, "d/../f/in"},
        {RENAME, "f", "f/in", .number = MDS_RENAME_EXCHANGE, .expect = EINVAL},
        {RENAME, "f/in", "f", .number = MDS_RENAME_EXCHANGE, .expect = EINVAL},
        {RENAME, "e", "d", .number = MDS_RENAME_EXCHANGE},
        {RENAME, "f/in", "d/", .number = MDS_RENAME_EXCHANGE, .expect = 0});
}

static void
permissions_are_checked(void **state)
{
    RUN({MKDIR, "open", .number = 0777}, {MKDIR, "shut", .number = 0700}, {CREAT, "shut/f"},
        {MKDIR, "r", .number = 0755}, {CREAT, "r/f"}, {CHMOD, "r/f", .number = 0640},
        {USER, .number = 7}, {STAT, "shut"}, {STAT, "shut/f", .expect = EACCES},
        {STAT, "shut/x", .expect = EACCES}, {STAT, "shut/.", .expect = EACCES},
        {STAT, "shut/..", .expect = EACCES}, {STAT, "r/f"},
        {OPEN, "r/f", .number = MDS_OPEN_READ, .expect = EACCES},
        {OPEN, "r/f", .number = MDS_OPEN_PATH}, {ACCESS, "r/f", .number = 4, .expect = EACCES},
        {ACCESS, "r/f", .number = 0}, {ACCESS, "open", .number = 7},
        {ACCESS, "r", .number = 2, .expect = EACCES}, {ACCESS, "r", .number = 5},
        {CREAT, "r/g", .expect = EACCES}, {MKDIR, "r/g", .expect = EACCES},
        {MKDIR, "r/f", .expect = EEXIST}, {UNLINK, "r/f", .expect = EACCES},
        {UNLINK, "r/x", .expect = ENOENT}, {RENAME, "r/f", "open/f", .expect = EACCES},
        {LINK, "r/f", "r/g", .expect = EACCES}, {LINK, "r/f", "open/g"},
        {CHMOD, "r/f", .number = 0777, .expect = EPERM},
        {SETSIZE, "r/f", .number = 1, .expect = EACCES}, {CREAT, "open/mine"},
        {CHMOD, "open/mine", .number = 0},
        {OPEN, "open/mine", .number = MDS_OPEN_READ, .expect = EACCES}, {USER, .number = 0},
        {OPEN, "open/mine", .number = MDS_OPEN_READ}, {ACCESS, "open/mine", .number = 6},
        {ACCESS, "open/mine", .number = 1, .expect = EACCES},
        {OPEN, "shut/f", .number = MDS_OPEN_WRITE});
}

static void
a_directorys_own_parent_changes_only_with_write_permission(void **state)
{
    RUN({MKDIR, "a", .number = 0777}, {MKDIR, "b", .number = 0777}, {MKDIR, "a/d", .number = 0755},
        {USER, .number = 7}, {RENAME, "a/d", "b/d", .expect = EACCES}, {RENAME, "a/d", "a/e"},
        {MKDIR, "a/own", .number = 0555}, {RENAME, "a/own", "b/own", .expect = EACCES},
        {CHMOD, "a/own", .number = 0755}, {RENAME, "a/own", "b/own"});
}

static void
the_sticky_bit_protects_names(void **state)
{
    RUN({MKDIR, "t", .number = 01777}, {CREAT, "t/root"}, {USER, .number = 7}, {CREAT, "t/seven"},
        {UNLINK, "t/root", .expect = EPERM}, {RENAME, "t/root", "t/x", .expect = EPERM},
        {RENAME, "t/seven", "t/root", .expect = EPERM}, {MKDIR, "t/d"}, {USER, .number = 8},
        {UNLINK, "t/seven", .expect = EPERM}, {RMDIR, "t/d", .expect = EPERM},
        {RENAME, "t/d", "t/e", .expect = EPERM}, {USER, .number = 7}, {UNLINK, "t/seven"},
        {RMDIR, "t/d"}, {USER, .number = 0}, {UNLINK, "t/root"});
}

static void
a_removed_directory_takes_no_names(void **state)
{
    static struct rig rig;

    for (uint32_t reactors = 1; reactors <= 4; reactors *= 2) {
        rig = (struct rig){0};
        rig_open(&rig, reactors, 1);
        assert_int_equal(rig_mkdir(&rig, "d", 0755), 0);
        assert_int_equal(rig_open_file(&rig, "d", MDS_OPEN_READ, 0, 0), 0);
        const struct fid fid = rig.attr.fid;
        const uint64_t handle = rig.handle;
        const struct mds_create_req make = {.mode = S_IFDIR | 0700};
        const struct mds_getattr_req get = {0};

        assert_int_equal(rig_rmdir(&rig, "d"), 0);
        assert_int_equal(rig.attr.nlink, 0);
        assert_int_equal(rig_stat_fid(&rig, &fid), 0);
        assert_int_equal(rig.attr.nlink, 0);
        assert_int_equal(
            rig_do(&rig, MDS_REINT_CREATE, &make, sizeof(make), &fid, "x", NULL, NULL, NULL, 0),
            -ENOENT);
        assert_int_equal(
            rig_do(&rig, MDS_GETATTR, &get, sizeof(get), &fid, "x", NULL, NULL, NULL, 0), -ENOENT);
        assert_int_equal(
            rig_do(&rig, MDS_GETATTR, &get, sizeof(get), &fid, "..", NULL, NULL, NULL, 0), 0);
        assert_int_equal(rig_close_file(&rig, &fid, handle, 0), 0);
        assert_int_equal(rig_stat_fid(&rig, &fid), -ESTALE);
        rig_close(&rig);
    }
}

static void
times_and_owners_follow_the_rules(void **state)
{
    static struct rig rig;

    rig = (struct rig){0};
    rig_open(&rig, 1, 1);
    assert_int_equal(rig_mkdir(&rig, "d", 0777), 0);
    const int64_t made = rig.attr.ctime_ns;

    assert_true(made >= (int64_t)RIG_WALL_NS);
    assert_int_equal(rig.attr.mtime_ns, made);
    assert_int_equal(rig_creat(&rig, "d/f"), 0);
    assert_int_equal(rig_stat(&rig, "d"), 0);
    assert_true(rig.attr.mtime_ns > made);
    assert_int_equal(rig.attr.mtime_ns, rig.attr.ctime_ns);
    const int64_t dir_time = rig.attr.mtime_ns;

    /* a change of mode is a change of ctime alone */
    assert_int_equal(rig_stat(&rig, "d/f"), 0);
    const int64_t file_time = rig.attr.mtime_ns;

    assert_int_equal(rig_chmod(&rig, "d/f", 04755), 0);
    assert_int_equal(rig.attr.mtime_ns, file_time);
    assert_true(rig.attr.ctime_ns > file_time);
    assert_int_equal(rig.attr.mode, S_IFREG | 04755);
    assert_int_equal(rig_stat(&rig, "d"), 0);
    assert_int_equal(rig.attr.mtime_ns, dir_time);

    /* times are set as told, or to now */
    struct mds_setattr_req set = {
        .valid = MDS_SET_ATIME | MDS_SET_MTIME, .atime_ns = 5, .mtime_ns = -7};

    assert_int_equal(rig_setattr(&rig, "d/f", &set), 0);
    assert_int_equal(rig.attr.atime_ns, 5);
    assert_int_equal(rig.attr.mtime_ns, -7);
    set = (struct mds_setattr_req){.valid = MDS_SET_MTIME_NOW};
    assert_int_equal(rig_setattr(&rig, "d/f", &set), 0);
    assert_int_equal(rig.attr.atime_ns, 5);
    assert_int_equal(rig.attr.mtime_ns, rig.attr.ctime_ns);

    /* a new owner takes set-user-id away */
    set = (struct mds_setattr_req){.valid = MDS_SET_UID | MDS_SET_GID, .uid = 7, .gid = 8};
    assert_int_equal(rig_setattr(&rig, "d/f", &set), 0);
    assert_int_equal(rig.attr.uid, 7);
    assert_int_equal(rig.attr.gid, 8);
    assert_int_equal(rig.attr.mode, S_IFREG | 0755);
    rig.uid = 7;
    rig.gid = 7;
    set = (struct mds_setattr_req){.valid = MDS_SET_UID, .uid = 9};
    assert_int_equal(rig_setattr(&rig, "d/f", &set), -EPERM);
    set = (struct mds_setattr_req){.valid = MDS_SET_GID, .gid = 9};
    assert_int_equal(rig_setattr(&rig, "d/f", &set), -EPERM);
    set = (struct mds_setattr_req){.valid = MDS_SET_GID, .gid = 7};
    assert_int_equal(rig_setattr(&rig, "d/f", &set), 0);
    rig.uid = 9;
    set = (struct mds_setattr_req){.valid = MDS_SET_MTIME, .mtime_ns = 1};
    assert_int_equal(rig_setattr(&rig, "d/f", &set), -EPERM);
    set = (struct mds_setattr_req){.valid = MDS_SET_MTIME_NOW};
    assert_int_equal(rig_setattr(&rig, "d/f", &set), -EACCES);
    rig.uid = 0;

    /* a set-group-id directory hands its group on */
    assert_int_equal(rig_mkdir(&rig, "g", 0777), 0);
    set = (struct mds_setattr_req){.valid = MDS_SET_GID, .gid = 42};
    assert_int_equal(rig_setattr(&rig, "g", &set), 0);
    assert_int_equal(rig_chmod(&rig, "g", 02777), 0);
    assert_int_equal(rig_mkdir(&rig, "g/sub", 0755), 0);
    assert_int_equal(rig.attr.gid, 42);
    assert_int_equal(rig.attr.mode, S_IFDIR | 02755);
    assert_int_equal(rig_mknod(&rig, "g/f", S_IFREG | 0644), 0);
    assert_int_equal(rig.attr.gid, 42);
    assert_int_equal(rig.attr.mode, S_IFREG | 0644);

    /* nonsense */
    set = (struct mds_setattr_req){.valid = MDS_SET_MTIME | MDS_SET_MTIME_NOW};
    assert_int_equal(rig_setattr(&rig, "d/f", &set), -EINVAL);
    set = (struct mds_setattr_req){.valid = 1u << 31};
    assert_int_equal(rig_setattr(&rig, "d/f", &set), -EINVAL);
    assert_int_equal(rig_chmod(&rig, "d/f", 1u << 15), -EINVAL);
    set = (struct mds_setattr_req){.valid = MDS_SET_SIZE, .size = UINT64_MAX};
    assert_int_equal(rig_setattr(&rig, "d/f", &set), -EFBIG);
    set = (struct mds_setattr_req){.valid = MDS_SET_SIZE};
    assert_int_equal(rig_setattr(&rig, "d", &set), -EISDIR);
    set = (struct mds_setattr_req){.valid = MDS_SET_STRIPE};
    assert_int_equal(rig_setattr(&rig, "d/f", &set), -ENOTDIR);
    rig_close(&rig);
}

static void
links_and_inodes_are_bounded(void **state)
{
    static struct rig rig;
    char name[32];

    rig = (struct rig){.inodes_max = 10};
    rig_open(&rig, 1, 1);
    for (uint32_t i = 0; i < 9; i++) { /* and the root */
        (void)snprintf(name, sizeof(name), "f%u", i);
        assert_int_equal(i % 2 == 0 ? rig_mkdir(&rig, name, 0700) : rig_creat(&rig, name), 0);
    }
    assert_int_equal(rig_creat(&rig, "more"), -ENOSPC);
    assert_int_equal(rig_mkdir(&rig, "more", 0700), -ENOSPC);
    assert_int_equal(rig_symlink(&rig, "x", "more"), -ENOSPC);
    assert_int_equal(rig_stat(&rig, "more"), -ENOENT);
    assert_int_equal(rig_raw(&rig, 0, MDS_STATFS, "", 0), 0);
    const struct mds_statfs_rep *statfs = (const struct mds_statfs_rep *)rig.reply;

    assert_int_equal(statfs->files, 10);
    assert_int_equal(statfs->files_free, 0);
    assert_int_equal(rig_unlink(&rig, "f1"), 0);
    assert_int_equal(rig_creat(&rig, "more"), 0);
    for (uint32_t i = 1; i < MDS_LINKS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "l%u", i);
        assert_int_equal(rig_link(&rig, "more", name), 0);
    }
    assert_int_equal(rig_link(&rig, "more", "last"), -EMLINK);
    assert_int_equal(rig_stat(&rig, "more"), 0);
    assert_int_equal(rig.attr.nlink, MDS_LINKS_MAX);
    rig_close(&rig);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(directories_are_made_and_removed),
    cmocka_unit_test(paths_are_walked_by_dots_and_slashes),
    cmocka_unit_test(names_have_255_bytes_at_most_in_every_call),
    cmocka_unit_test(any_bytes_but_slash_and_nul_make_a_name),
    cmocka_unit_test(files_are_opened_and_made_as_the_flags_say),
    cmocka_unit_test(symlinks_are_followed_where_they_must_be),
    cmocka_unit_test(names_are_unlinked),
    cmocka_unit_test(files_have_several_names),
    cmocka_unit_test(files_are_renamed),
    cmocka_unit_test(directories_are_renamed),
    cmocka_unit_test(names_are_exchanged),
    cmocka_unit_test(permissions_are_checked),
    cmocka_unit_test(a_directorys_own_parent_changes_only_with_write_permission),
    cmocka_unit_test(the_sticky_bit_protects_names),
    cmocka_unit_test(a_removed_directory_takes_no_names),
    cmocka_unit_test(times_and_owners_follow_the_rules),
    cmocka_unit_test(links_and_inodes_are_bounded),
};

TEST_MAIN(cases)
