#!/bin/sh
# Succeeds where a C extension of the given Python could be compiled: a compiler, and that Python's headers.
include=$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))') || exit 1
command -v gcc >/dev/null || command -v cc >/dev/null || exit 1
test -f "$include/Python.h"
