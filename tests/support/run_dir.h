/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A run directory of its own for each test that uses shm.
 */
#pragma once

/* Makes an empty directory and writes its path. */
void run_dir_make(char path[64]);

/* Removes the directory and the files in it. */
void run_dir_remove(const char *path);
