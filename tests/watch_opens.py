#!/usr/bin/env python3
"""Runs a command and fails when it opened one of the watched files: watch_opens.py FILE... -- COMMAND...

The kernel tells (inotify), so no program can read a file unseen, whatever library it uses. Exit status: 3 and the names of
the files when one was opened, else the command's own.
"""
import ctypes
import os
import struct
import subprocess
import sys

IN_OPEN = 0x20


def main():
    separator = sys.argv.index("--")
    files, command = sys.argv[1:separator], sys.argv[separator + 1 :]
    libc = ctypes.CDLL(None, use_errno=True)
    events = libc.inotify_init1(os.O_NONBLOCK)
    watched = {libc.inotify_add_watch(events, name.encode(), IN_OPEN): name for name in files}
    if events < 0 or -1 in watched:
        sys.exit(f"cannot watch {files}: {os.strerror(ctypes.get_errno())}")
    status = subprocess.run(command).returncode
    opened = set()
    try:
        while data := os.read(events, 1 << 16):
            while data:
                watch, _, _, length = struct.unpack_from("iIII", data)
                opened.add(watched[watch])
                data = data[16 + length :]
    except BlockingIOError:
        pass
    if opened:
        print("opened:", *sorted(opened), file=sys.stderr)
        return 3
    return status


if __name__ == "__main__":
    sys.exit(main())
