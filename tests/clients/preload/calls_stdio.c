/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stdio in all forms, and temporary files.
 */
#include "tests/clients/preload/calls.h"

#include <wchar.h>

static void
modes(void)
{
    static const char *const all[] = {"r",  "w",   "a",  "r+", "w+", "a+",
                                      "wx", "w+e", "rb", "z",  "rm"};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        for (int is_there = 0; is_there < 2; is_there++) {
            char label[32];
            char text[16] = "";

            unlink(at("file"));
            if (is_there) {
                make_file("file", "before");
            }
            snprintf(label, sizeof(label), "fopen %s %d", all[i], is_there);
            errno = 0;
            FILE *file = say_pointer(label, fopen(at("file"), all[i]));
            if (file == NULL) {
                continue;
            }
            SAY(fputs("new", file) >= 0);
            SAY(fseek(file, 0, SEEK_SET));
            SAY(fgets(text, sizeof(text), file) != NULL);
            SAY(ftell(file));
            SAY(ferror(file) != 0);
            SAY(fclose(file));
            say_file("file");
        }
    }
}

static void
moving(void)
{
    char buffer[32] = "";
    FILE *file = fopen64(at("moving"), "w+");
    fpos_t place;

    SAY(fprintf(file, "%s %d\n", "line", 1));
    SAY(fprintf(file, "line %d\nline 3", 2));
    SAY(ftell(file));
    SAY(fseek(file, 2, SEEK_SET));
    SAY(fgetc(file));
    SAY(ungetc('Z', file));
    SAY(fgetc(file));
    SAY(fgetpos(file, &place));
    SAY(fread(buffer, 1, 4, file) == 4);
    SAY(fsetpos(file, &place));
    SAY(fgets(buffer, sizeof(buffer), file) != NULL);
    printf("%s", buffer);
    SAY(fseeko(file, -6, SEEK_END));
    SAY(ftello(file));
    SAY(fscanf(file, "%s", buffer));
    rewind(file);
    SAY(feof(file) != 0);
    char *line = NULL;
    size_t room = 0;
    SAY(getline(&line, &room, file));
    printf("%s", line);
    free(line);
    SAY(fileno(file) >= 0);
    SAY(fseek(file, 100, SEEK_SET));
    SAY(fputc('!', file));
    SAY(fflush(file));
    SAY(fwrite("raw", 1, 3, file) == 3);
    SAY(fclose(file));
    struct stat stat;
    lstat(at("moving"), &stat);
    say_stat("moving", &stat);
}

static void
buffers(void)
{
    static char own[7];
    char large[20000];
    FILE *file = fopen(at("buffers"), "w+");

    SAY(setvbuf(file, own, _IOFBF, sizeof(own)));
    memset(large, 'L', sizeof(large));
    SAY(fwrite(large, 1, sizeof(large), file) == sizeof(large));
    SAY(fputs("end", file) >= 0);
    fclose(file);
    file = fopen(at("buffers"), "r");
    SAY(setvbuf(file, NULL, _IONBF, 0));
    SAY(fseek(file, -4, SEEK_END));
    SAY(fread(large, 1, 10, file) == 4);
    printf("%.4s\n", large);
    SAY(feof(file) != 0);
    fclose(file);
    file = fopen(at("buffers"), "a");
    setlinebuf(file);
    fputs("one\ntwo", file);
    struct stat stat;
    lstat(at("buffers"), &stat);
    say_stat("line buffered", &stat);
    fclose(file);
    lstat(at("buffers"), &stat);
    say_stat("closed", &stat);
}

static void
descriptors(void)
{
    char text[32] = "";
    int fd = open(at("fdopen"), O_CREAT | O_RDWR, 0600);
    FILE *file = PTR(fdopen(fd, "w+"));

    fputs("by a descriptor\n", file);
    fflush(file);
    SAY(lseek(fd, 0, SEEK_CUR));
    fclose(file);
    SAY(fcntl(fd, F_GETFD));
    fd = open(at("fdopen"), O_RDONLY);
    file = PTR(fdopen(fd, "w"));
    close(fd);
    file = fopen(at("fdopen"), "r");
    file = PTR(freopen(at("other"), "w", file));
    fputs("reopened", file);
    file = PTR(freopen(NULL, "a", file));
    if (file != NULL) {
        fputs(", again", file);
        fclose(file);
    }
    say_file("other");
    /* As a shell does for "< file". */
    const int saved = dup(0);
    fd = open(at("fdopen"), O_RDONLY);
    SAY(dup2(fd, 0));
    close(fd);
    clearerr(stdin);
    SAY(fgets(text, sizeof(text), stdin) != NULL);
    printf("%s", text);
    SAY(dup2(saved, 0));
    close(saved);
    fflush(stdout);
    const int out = dup(1);
    fd = open(at("out"), O_CREAT | O_WRONLY, 0600);
    dup2(fd, 1);
    close(fd);
    printf("to stdout\n");
    fflush(stdout);
    (void)!system("echo by a shell");
    dup2(out, 1);
    close(out);
    say_file("out");
}

static void
pipes(void)
{
    char command[600];
    char text[64] = "";

    snprintf(command, sizeof(command), "cat > %s", at("popened"));
    FILE *file = PTR(popen(command, "w"));
    fputs("through a pipe", file);
    SAY(pclose(file));
    say_file("popened");
    snprintf(command, sizeof(command), "cat %s; exit 3", at("popened"));
    file = PTR(popen(command, "r"));
    SAY(fgets(text, sizeof(text), file) != NULL);
    printf("%s\n", text);
    printf("%x\n", (unsigned)pclose(file));
}

static void
wide(void)
{
    FILE *file = fopen(at("wide"), "w+");

    SAY(fputws(L"wide\n", file));
    fclose(file);
    say_file("wide");
}

void
part_stdio(void)
{
    modes();
    moving();
    buffers();
    descriptors();
    pipes();
    wide();
}

void
part_temporary(void)
{
    char name[512];
    struct stat stat;

    snprintf(name, sizeof(name), "%s", at("tmpXXXXXX"));
    int fd = FD(mkstemp(name));
    printf("%d\n", strstr(name, "XXXXXX") == NULL && lstat(name, &stat) == 0);
    fstat(fd, &stat);
    say_stat("mkstemp", &stat);
    SAY(write(fd, "x", 1));
    close(fd);
    snprintf(name, sizeof(name), "%s", at("tmpXXXXXX"));
    fd = FD(mkostemp64(name, O_CLOEXEC | O_APPEND));
    SAY(fcntl(fd, F_GETFD));
    close(fd);
    snprintf(name, sizeof(name), "%s", at("tmpXXXXXX.end"));
    FD(mkstemps(name, 4));
    snprintf(name, sizeof(name), "%s", at("tmpXXXXXX.end"));
    FD(mkostemps(name, 4, O_CLOEXEC));
    snprintf(name, sizeof(name), "%s", at("missing/XXXXXX"));
    FD(mkstemp(name));
    snprintf(name, sizeof(name), "%s", at("dirXXXXXX"));
    printf("%d\n", mkdtemp(name) != NULL && lstat(name, &stat) == 0 && S_ISDIR(stat.st_mode));
    snprintf(name, sizeof(name), "%s", at("x"));
    PTR(mkdtemp(name));
    FILE *file = tmpfile();
    SAY(fputs("anonymous", file) >= 0);
    SAY(fclose(file));
    setenv("TMPDIR", at(""), 1);
    char *made = tempnam(at(""), "pre");
    printf("%d\n", made != NULL && strncmp(made, top, strlen(top)) == 0);
    free(made);
    unsetenv("TMPDIR");
    /* An anonymous file that gets a name. */
    fd = FD(open(top, O_TMPFILE | O_RDWR, 0600));
    SAY(write(fd, "named late", 10));
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    SAY(linkat(AT_FDCWD, path, AT_FDCWD, at("named"), AT_SYMLINK_FOLLOW));
    SAY(linkat(fd, "", AT_FDCWD, at("named2"), AT_EMPTY_PATH));
    close(fd);
    say_file("named");
    say_file("named2");
}
