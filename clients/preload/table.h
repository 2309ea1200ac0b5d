/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of descriptions that processes share, and the placeholders that name them. See files.h.
 */
#pragma once

#include "clients/preload/files.h"

/* Maps the table that this process inherited. Returns false if there is none. */
bool table_inherit(void);

/* Makes what is not there yet. Returns 0 or a negative errno. */
int table_ready(void);

/* Is there a table? */
bool table_is_there(void);

/* Description number @index. */
struct description *table_description(uint32_t index);

/* Makes a placeholder with a new description, counted once. Returns the descriptor or a negative
 * errno. */
int table_placeholder(bool is_cloexec, bool is_dir, uint32_t *index_out);

/* The description that the placeholder @fd names, or -1: it is none of this table's. */
long table_index_of(int fd);

/* Gives up one count. */
void table_drop(uint32_t index);

/* Takes one count. */
void table_take(uint32_t index);

/* What every process must have to use inherited placeholders is there in this one, which shares the
 * memory of @parent but has closed descriptors. */
void table_restore(pid_t parent);

/* Has the process @pid ended (if not been waited for)? */
bool table_is_dead(pid_t pid);
