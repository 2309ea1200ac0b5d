/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Directories: streams and walks over them; and the working directory.
 */
#include "tests/clients/preload/calls.h"

#include <dirent.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>

char *__getcwd_chk(char *buffer, size_t bytes, size_t room);
char *__realpath_chk(const char *path, char *resolved, size_t room);

#define MANY 300

static int
compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of a stream in order. */
static void
say_names(DIR *dir)
{
    char *names[MANY + 8];
    int count = 0;
    const struct dirent *entry = NULL;

    errno = 0;
    while (count < MANY + 8 && (entry = readdir(dir)) != NULL) {
        char text[300];

        snprintf(text, sizeof(text), "%s %d", entry->d_name, entry->d_type);
        names[count++] = strdup(text);
    }
    printf("%d names, %s\n", count, errno == 0 ? "end" : strerrorname_np(errno));
    qsort(names, (size_t)count, sizeof(names[0]), compare_names);
    for (int i = 0; i < count; i++) {
        if (i < 20) {
            printf("  %s\n", names[i]);
        }
        free(names[i]);
    }
}

static void
streams(void)
{
    DIR *dir = PTR(opendir(top));

    say_names(dir);
    rewinddir(dir);
    say_names(dir);
    SAY(dirfd(dir) >= 0);
    SAY(closedir(dir));
    PTR(opendir(at("missing")));
    PTR(opendir(at("file")));
    PTR(opendir(""));
    int fd = open(at("dir"), O_RDONLY | O_DIRECTORY);
    dir = PTR(fdopendir(fd));
    say_names(dir);
    closedir(dir);
    SAY(close(fd));
    fd = open(at("file"), O_RDONLY);
    PTR(fdopendir(fd));
    close(fd);
    fd = open(at("dir"), O_PATH);
    PTR(fdopendir(fd));
    close(fd);
}

/* A place in a directory leads to the same entry again, and deleting skips and repeats nothing. */
static void
places(void)
{
    static struct {
        long place;
        char name[256];
    } entries[MANY + 8];
    int count = 0;
    bool is_right = true;

    mkdir(at("many"), 0700);
    for (int i = 0; i < MANY; i++) {
        char name[300];

        snprintf(name, sizeof(name), "many/%0*d", 1 + i * 254 / MANY, i);
        make_file(name, "");
    }
    DIR *dir = opendir(at("many"));
    for (;;) {
        const long place = telldir(dir);
        const struct dirent *entry = readdir(dir);

        if (entry == NULL) {
            break;
        }
        entries[count].place = place;
        strcpy(entries[count++].name, entry->d_name);
    }
    printf("%d entries\n", count);
    for (int i = 0; i < count; i++) {
        const int k = i * 7 % count;

        seekdir(dir, entries[k].place);
        const struct dirent *entry = readdir(dir);
        is_right = is_right && entry != NULL && strcmp(entry->d_name, entries[k].name) == 0;
    }
    printf("all at their places: %d\n", is_right);
    struct dirent one;
    struct dirent *result = NULL;
    rewinddir(dir);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    ERROR(readdir_r(dir, &one, &result));
    struct dirent64 one64;
    struct dirent64 *result64 = NULL;
    ERROR(readdir64_r(dir, &one64, &result64));
#pragma GCC diagnostic pop
    printf("%d\n", readdir64(dir) != NULL);
    rewinddir(dir);
    int removed = 0;
    for (const struct dirent *entry = NULL; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.') {
            removed += unlinkat(dirfd(dir), entry->d_name, 0) == 0 ? 1 : 0;
        }
    }
    printf("%d removed\n", removed);
    closedir(dir);
    SAY(rmdir(at("many")));
}

static int
not_dot(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static char *walked[64];
static int walked_count;

static void
note_walked(const char *path, int what)
{
    char text[300];

    snprintf(text, sizeof(text), "%s %d", without_top(path), what);
    if (walked_count < 64) {
        walked[walked_count++] = strdup(text);
    }
}

static void
say_walked(const char *label)
{
    qsort(walked, (size_t)walked_count, sizeof(walked[0]), compare_names);
    printf("%s:\n", label);
    for (int i = 0; i < walked_count; i++) {
        printf("  %s\n", walked[i]);
        free(walked[i]);
    }
    walked_count = 0;
}

static int
walk_one(const char *path, const struct stat *stat, int type)
{
    (void)stat;
    note_walked(path, type);
    return 0;
}

static int
walk_deep(const char *path, const struct stat *stat, int type, struct FTW *walk)
{
    (void)stat;
    /* With FTW_CHDIR the last name is to be seen from here. */
    note_walked(path, type * 10 + (access(path + walk->base, F_OK) == 0 ? 1 : 0));
    return 0;
}

static void
walks(void)
{
    char *paths[2] = {(char *)(uintptr_t)at(""), NULL};
    struct dirent **list = NULL;
    struct dirent64 **list64 = NULL;
    glob_t found;

    const long count = SAY(scandir(top, &list, not_dot, alphasort));
    for (long i = 0; i < count; i++) {
        printf("  %s\n", list[i]->d_name);
    }
    SAY(scandir64(at("dir"), &list64, NULL, alphasort64));
    SAY(scandir(at("missing"), &list, NULL, alphasort));
    const int fd = open(top, O_RDONLY);
    SAY(scandirat(fd, "dir", &list, NULL, alphasort));
    close(fd);
    SAY(ftw(top, walk_one, 8));
    say_walked("ftw");
    SAY(nftw(top, walk_deep, 8, FTW_PHYS | FTW_DEPTH));
    say_walked("nftw, deep");
    SAY(nftw(top, walk_deep, 2, FTW_CHDIR));
    say_walked("nftw, going there");
    SAY(nftw(top, walk_deep, 2, FTW_CHDIR | FTW_PHYS | FTW_MOUNT));
    say_walked("nftw, going there, physical");
    SAY(nftw(at("missing"), walk_deep, 2, 0));
    SAY(nftw64(top, (__nftw64_func_t)(void *)walk_deep, 4, FTW_PHYS));
    say_walked("nftw64");
    for (int options = 0; options < 3; options++) {
        const int flags[] = {FTS_PHYSICAL, FTS_LOGICAL, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV};
        FTS *fts = fts_open(paths, flags[options], NULL);
        const FTSENT *entry = NULL;

        while ((entry = fts_read(fts)) != NULL) {
            note_walked(entry->fts_path, entry->fts_info);
        }
        fts_close(fts);
        say_walked("fts");
    }
    SAY(glob(at("*"), GLOB_MARK, NULL, &found));
    for (size_t i = 0; i < found.gl_pathc; i++) {
        printf("  %s\n", without_top(found.gl_pathv[i]));
    }
    SAY(glob(at("d*/*"), 0, NULL, &found));
    printf("%zu\n", found.gl_pathc);
    SAY(glob64(at("x*"), 0, NULL, (glob64_t *)&found));
}

static void
raw_entries(void)
{
    char buffer[64];
    const int fd = open(at("dir"), O_RDONLY | O_DIRECTORY);
    const int file = open(at("file"), O_RDONLY);

    SAY(getdents64(fd, buffer, sizeof(buffer)) > 0);
    SAY(getdents64(fd, buffer, 8));
    SAY(getdents64(file, buffer, sizeof(buffer)));
    SAY(getdents64(-1, buffer, sizeof(buffer)));
    close(fd);
    close(file);
}

static void
removed_directory(void)
{
    mkdir(at("going"), 0700);
    DIR *dir = opendir(at("going"));
    SAY(rmdir(at("going")));
    errno = 0;
    printf("%d\n", readdir(dir) == NULL);
    SAY(openat(dirfd(dir), "new", O_CREAT | O_RDWR, 0600));
    SAY(mkdirat(dirfd(dir), "new", 0600));
    SAY(closedir(dir));
}

void
part_directories(void)
{
    make_file("file", "content");
    mkdir(at("dir"), 0755);
    make_file("dir/one", "1");
    mkdir(at("dir/sub"), 0755);
    make_file("dir/sub/two", "2");
    (void)!symlink("dir", at("link"));
    (void)!symlink("missing", at("dangling"));
    streams();
    walks();
    raw_entries();
    removed_directory();
    places();
}

/* ---- the working directory ---- */

static void
say_cwd(const char *label)
{
    char buffer[PATH_MAX];

    errno = 0;
    if (getcwd(buffer, sizeof(buffer)) == NULL) {
        say_pointer(label, NULL);
    } else {
        say_text(label, without_top(buffer));
    }
}

static void
getcwd_forms(void)
{
    char buffer[PATH_MAX];
    char *text = getcwd(NULL, 0);

    say_text("getcwd(NULL, 0)", without_top(text));
    free(text);
    text = getcwd(NULL, PATH_MAX);
    say_text("getcwd(NULL, PATH_MAX)", without_top(text));
    free(text);
    PTR(getcwd(buffer, 3));
    PTR(getcwd(buffer, 0));
    PTR(getcwd(NULL, 2));
    say_text("__getcwd_chk", without_top(__getcwd_chk(buffer, sizeof(buffer), sizeof(buffer))));
    say_text("getwd", without_top(get_current_dir_name()));
    setenv("PWD", at("to_dir"), 1);
    say_text("by PWD", without_top(get_current_dir_name()));
}

static void
relative(void)
{
    struct stat info;
    char buffer[64];

    make_file("dir/here", "here");
    SAY(stat("here", &info));
    SAY(stat("./here", &info));
    SAY(stat("../dir/here", &info));
    SAY(stat("../to_dir/../dir/here", &info));
    SAY(stat("missing", &info));
    FD(open("new", O_CREAT | O_WRONLY, 0600));
    SAY(rename("new", "../moved"));
    SAY(symlink("../moved", "link"));
    SAY(readlink("link", buffer, sizeof(buffer)));
    SAY(mkdir("sub", 0700));
    SAY(access("sub/.", X_OK));
    SAY(unlink("../moved"));
    SAY(stat("link", &info));
    SAY(stat("../../../../../../../../../etc/passwd", &info));
    FD(open("../../../../../../../../../etc/passwd", O_RDONLY));
    SAY(stat("../../../../../../../../../missing", &info));
    SAY(mkdir("../../../../../../../../../etc/passwd/x", 0700));
}

void
part_cwd(void)
{
    char buffer[PATH_MAX];
    char far[64];

    mkdir(at("dir"), 0755);
    mkdir(at("dir/deep"), 0755);
    make_file("file", "");
    (void)!symlink("dir", at("to_dir"));
    (void)!symlink("dir/deep", at("to_deep"));
    SAY(chdir(at("dir")));
    say_cwd("in dir");
    getcwd_forms();
    relative();
    SAY(chdir("deep"));
    say_cwd("deeper");
    SAY(chdir(".."));
    say_cwd("back");
    SAY(chdir("missing"));
    SAY(chdir(at("file")));
    SAY(chdir(""));
    SAY(chdir("../to_deep"));
    say_cwd("by a link");
    SAY(chdir(".."));
    say_cwd("its parent");
    SAY(chdir(at("to_deep/..")));
    say_cwd("by a link and back");
    const int here = open(".", O_RDONLY);
    SAY(chdir("/"));
    say_cwd("outside");
    SAY(fchdir(here));
    say_cwd("back again");
    const int deep = openat(here, "deep", O_RDONLY | O_DIRECTORY);
    SAY(fchdir(deep));
    say_cwd("by openat()");
    SAY(rename(at("dir/deep"), at("dir/deeper")));
    say_cwd("renamed");
    SAY(rename(at("dir"), at("dir2")));
    say_cwd("renamed above");
    SAY(fchdir(here));
    say_cwd("renamed, by a descriptor");
    SAY(chdir("deeper"));
    SAY(rmdir(at("dir2/deeper")));
    say_cwd("removed");
    FD(open("x", O_CREAT | O_RDWR, 0600));
    SAY(access(".", F_OK));
    SAY(chdir(at("dir2")));
    const int file = open(at("file"), O_RDONLY);
    SAY(fchdir(file));
    SAY(fchdir(-1));
    SAY(chdir(top));
    say_cwd("top");
    snprintf(far, sizeof(far), "..%s", strrchr(top, '/'));
    SAY(chdir(far));
    say_cwd("out and in again");
    say_text("realpath .", without_top(realpath(".", buffer)));
    say_text("realpath to_deep", without_top(realpath("to_dir", buffer)));
    SAY(chdir("/"));
    say_text("realpath", without_top(realpath(at("dir2/../file"), buffer)));
    PTR(realpath(at("missing"), buffer));
    PTR(realpath(at("file/"), buffer));
    PTR(realpath(at("missing/x"), NULL));
    say_text("canonicalize", without_top(canonicalize_file_name(at("dir2/."))));
    say_text("__realpath_chk", without_top(__realpath_chk(at("file"), buffer, sizeof(buffer))));
    close(here);
    close(deep);
    close(file);
}
