/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the parts of the program `calls` share. Each part makes calls on files below a directory and
 * prints what they gave; the same program in a local directory and on Causeway must print the same.
 * preload_test.py compares.
 */
#pragma once

#ifndef _GNU_SOURCE
#    define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

extern char top[256];    /* the directory under test */
extern bool on_causeway; /* else the local one */

/* Prints "label: value", or "label: -1 ERRNO". Returns the value. */
long say(const char *label, long value);
/* The same for calls that return an error number. */
long say_error(const char *label, int error);
/* The same for a descriptor, whose number is not told. */
int say_fd(const char *label, int fd);
/* The same for a pointer. */
void *say_pointer(const char *label, const void *pointer);
void say_text(const char *label, const char *text);

#define SAY(call)   (errno = 0, say(#call, (long)(call)))
#define FD(call)    (errno = 0, say_fd(#call, (call)))
#define PTR(call)   (errno = 0, say_pointer(#call, (call)))
#define ERROR(call) say_error(#call, (call))

/* What Causeway documents to be different: fails with @error there. Locally nothing is said. */
#define DIFFERS(call, error) differs(#call, (errno = 0, (long)(call)), error)
void differs(const char *label, long value, int error);

/* top + "/" + name. Sixteen may be in use at once. */
const char *at(const char *name);

/* @path without the directory under test. */
const char *without_top(const char *path);

void make_file(const char *name, const char *text);
void say_file(const char *name);                       /* its content */
void say_stat(const char *label, const struct stat *); /* what does not depend on place and time */
void empty_top(void);                                  /* removes all that is in it */
void fill_pattern(void *memory, size_t bytes, uint64_t seed);
bool is_pattern(const void *memory, size_t bytes, uint64_t seed);

void part_open(void);
void part_io(void);
void part_stat(void);
void part_names(void);
void part_attributes(void);
void part_directories(void);
void part_cwd(void);
void part_descriptors(void);
void part_locks(void);
void part_mmap(void);
void part_stdio(void);
void part_temporary(void);
void part_processes(void);
void part_copies(void);
void part_orphans(void);
void part_old_names(void);
