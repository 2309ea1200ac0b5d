#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Real programs on Causeway: each case is a shell script that is run twice, in a local directory and below
the prefix under `causeway run`; output and exit status must be the same.

Usage: programs_test.py CAUSEWAY_PROGRAM [--only NAME] [--list] [-- extra options of causeway run]

Prints TAP. A case whose program is not on PATH is skipped and says so.
"""
import os
import shutil
import subprocess
import sys
import tempfile

# name, programs it needs, script. The working directory is an empty one of the file system under test;
# $LOCAL is a scratch directory of the local one.
CASES = [
    ("redirections", [], r"""
        echo one > f; echo two >> f; cat f
        { echo a; /bin/echo b; echo c; } > g; cat g; wc -c < g
        exec 3> h; echo x >&3; /bin/echo y >&3; exec 3>&-; cat h
        exec 4< f; read -r line <&4; echo "$line"; cat <&4; exec 4<&-
        cat <<< "here" > i; cat i
        set -C; (echo no > f) 2>/dev/null || echo noclobber; set +C; echo yes >| f; cat f
        exec 5<> rw; echo 12345 >&5; exec 5>&-; cat rw
        (echo err >&2) 2> e; cat e
        ls nothing > out 2> err; echo $?; test -s err && echo err is there
    """),
    ("pipelines", [], r"""
        seq 1 20000 > n; sort -rn n | head -3; grep -c 7 n; tail -n 2 n; wc -l n
        cat n | tee copy | wc -c; cmp n copy && echo same
        sed -i 's/^1$/one/' n; head -1 n; awk '{s+=$1} END {print s}' copy
        split -l 5000 copy part; ls part*; cat part* | cmp - copy && echo same
        tr a-z A-Z < n | head -1 > upper; cat upper; cut -c1 copy | sort -u | tr '\n' ' '
        sort -S 64k -T . copy -o sorted; sha256sum sorted | cut -c1-16; uniq -c upper
        dd if=copy of=dd.out bs=777 2>/dev/null; cmp copy dd.out && echo same
        dd if=/dev/zero of=sparse bs=1 count=0 seek=1M 2>/dev/null; stat -c %s sparse
        truncate -s 100 dd.out; stat -c %s dd.out; printf x | dd of=dd.out bs=1 seek=50 conv=notrunc 2>/dev/null
        sha256sum dd.out | cut -c1-16; od -c dd.out | tail -2
    """),
    ("names", [], r"""
        mkdir -p a/b/c; touch a/x a/b/y; mkdir a 2>/dev/null || echo exists
        ls -R a; mv a/x a/b/z; mv a/b d; ls d a; rmdir a && echo gone; rmdir d 2>/dev/null || echo full
        ln -s d/y link; readlink link; cat link; echo in > link; cat d/y; ln d/y hard; stat -c '%h %F' hard
        rm link; ls -l hard | cut -c1-10; chmod 640 hard; stat -c %a hard d/y; chmod u+x,g-r hard; stat -c %a hard
        touch -d '2001-02-03 04:05:06 UTC' hard; stat -c %Y hard; touch -r hard new; stat -c %Y new
        long=$(printf 'n%.0s' $(seq 255)); echo l > "$long"; cat "$long"; ls | grep -c nnnn; rm "$long"
        (echo > "${long}x") 2>/dev/null || echo too long; echo sp > 'a b
c"\'; ls -Q | head -3; cat a*; rm -- a*
        ln -s loop loop; cat loop 2>/dev/null || echo loop; ln -s nowhere dangling; test -e dangling || echo dangling
        cp -P dangling d2; readlink d2; rm -rf d; test -d d || echo removed; ls
        mkfifo p; test -p p && echo fifo; ls -ld . | cut -c1; stat -c '%F' .; df . > /dev/null && echo df
        mkdir t; chmod 1777 t; stat -c %a t; umask 027; echo > u; mkdir v; stat -c %a u v
    """),
    ("posix_spawn", ["python3"], r"""
        printf '#!/bin/sh\necho "script ${*##*/}"; pwd | wc -l; cat\n' > s.sh; chmod +x s.sh; cp /bin/cat mycat
        printf '#!./s.sh from\n' > twice; chmod +x twice; echo data > data; mkdir d; echo inner > d/f
        cat > p.py << 'END'
import os
def spawn(path, *args, actions=()):
    try:
        pid = os.posix_spawn(path, [path, *args], os.environ, file_actions=actions)
    except OSError as error:
        return print(path, error.errno, flush=True)
    print(path, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
IN = (os.POSIX_SPAWN_OPEN, 0, "data", os.O_RDONLY, 0)
OUT = (os.POSIX_SPAWN_OPEN, 1, "out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
for path in "./s.sh", "./mycat", "./twice", "/bin/cat", "./none", "./data":
    spawn(path, "-", actions=[IN])
spawn("./mycat", "-", "d/f", actions=[IN, OUT])
print(open("out").read(), oct(os.stat("out").st_mode), flush=True)
with open("log", "w+") as log:
    log.write("before\n"); log.flush()
    for i in range(3):
        spawn("./mycat", "data", actions=[(os.POSIX_SPAWN_DUP2, log.fileno(), 1)])
    log.write("after\n"); log.seek(0); print(log.read())
print(os.listdir("/proc/self/fd") == [], len(os.listdir(".")), flush=True)
END
        python3 p.py
        printf 'all:\n\t@./s.sh of make < data\n' > Makefile; command -v make > /dev/null && make -s
    """),
    ("tree copies", ["tar", "find", "diff"], r"""
        cp -r /usr/share/doc/tar src 2>/dev/null || cp -r /etc/apt src; mkdir s; (cd s && seq 1 500 | xargs touch)
        for i in 1 2 3; do head -c $((i * 70001)) /dev/urandom > s/big$i; done
        cp -r s t; diff -r s t && echo same; cp -a s u; diff -r s u && echo same
        tar cf s.tar s; mkdir x; tar xf s.tar -C x; diff -r s x/s && echo same
        tar czf s.tgz s; tar tzf s.tgz | wc -l; tar xzf s.tgz -C "$LOCAL"; diff -r s "$LOCAL/s" && echo same
        tar cf - s | (mkdir y; cd y; tar xf -); diff -r s y/s && echo same; rm -r "$LOCAL/s"
        cp -r s "$LOCAL/back"; diff -r s "$LOCAL/back" && echo same; rm -r "$LOCAL/back"
        find . -type f | wc -l; find . -name 'big*' -newer s -o -name 'big1' | sort | head -2; find s -empty | wc -l
        find t -type f -name '1*' -delete; find t -type f | wc -l; find s -type f -print0 | xargs -0 sha256sum | wc -l
        rm -rf t u x y; ls; du -a s > /dev/null && echo du; cp s/big1 s/big1.copy; cmp s/big1 s/big1.copy && echo same
        mv s "$LOCAL/moved"; ls; mv "$LOCAL/moved" s; find s -type f | wc -l
    """),
    ("rsync", ["rsync"], r"""
        mkdir s; seq 1 100 > s/a; mkdir s/d; seq 1 9 > s/d/b; rsync -a s/ t/; diff -r s t && echo same
        echo more >> s/a; rsync -a --delete s/ t/; diff -r s t && echo same; rsync -ac s/ "$LOCAL/r/"; diff -r s "$LOCAL/r" && echo same
    """),
    ("git", ["git"], r"""
        export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        git init -q -b main r; cd r; seq 1 1000 > f; mkdir d; for i in $(seq 1 60); do echo $i > d/$i; done
        git add .; git commit -qm one; git rev-parse HEAD; echo x >> f; git commit -qam two; git rev-parse HEAD
        git log --oneline | wc -l; git status --porcelain; git diff HEAD~1 --stat | tail -1; cd ..
        git clone -q r c; cd c; git rev-parse HEAD; git fsck --full 2>/dev/null && echo fsck; git checkout -q -b b; git rm -q d/1; git commit -qm three
        git gc -q 2>/dev/null; git fsck 2>/dev/null && echo fsck; git log --oneline | wc -l; git stash list; git checkout -q main; ls d | wc -l
        cd ..; git clone -q --bare r bare.git; cd c; git push -q ../bare.git b; git -C ../bare.git branch | wc -l
        git grep -c 999 f; git merge -q b 2>/dev/null; ls d | wc -l
    """),
    ("python", ["python3"], r"""
        cat > t.py <<'PY'
import glob, hashlib, io, json, mmap, os, shutil, stat, subprocess, sys, tempfile, threading
with open("a", "w") as f: f.write("hello\n" * 1000)
with open("a", "rb") as f:
    f.seek(-6, os.SEEK_END); assert f.read() == b"hello\n"; f.seek(3); assert f.read(2) == b"lo"
    f.seek(0); m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); assert m[:5] == b"hello" and len(m) == 6000
with open("a", "r+") as f: f.truncate(10); f.seek(0, 2); assert f.tell() == 10
os.makedirs("d/e/f"); open("d/e/f/x", "w").close()
print(sorted(os.listdir("d/e/f")), [sorted(x[2]) for x in os.walk("d")], glob.glob("d/**/x", recursive=True))
shutil.copytree("d", "k"); shutil.move("k", "kk"); shutil.rmtree("kk"); print(os.path.exists("kk"))
fd = os.open("p", os.O_RDWR | os.O_CREAT); os.pwrite(fd, b"abc", 5); print(os.pread(fd, 10, 0), os.fstat(fd).st_size)
print(os.writev(fd, [b"12", b"", b"345"]), os.lseek(fd, 0, 1)); buf = [bytearray(2), bytearray(9)]; print(os.preadv(fd, buf, 1), buf)
fd2 = os.dup(fd); os.lseek(fd2, 1, 0); print(os.read(fd, 2)); os.dup2(fd, 77); print(os.read(77, 1)); os.close(77); os.close(fd2); os.close(fd)
r = subprocess.run(["cat"], stdin=open("p", "rb"), capture_output=True); print(r.stdout)
with open("o", "w") as f: subprocess.run(["sh", "-c", "echo out; pwd | wc -l"], stdout=f)
print(open("o").read()); print(subprocess.run(["ls", "d"], capture_output=True, cwd=".", text=True).stdout)
with tempfile.NamedTemporaryFile(dir=".") as t: t.write(b"x" * 100000); t.flush(); print(os.path.getsize(t.name))
with tempfile.TemporaryFile(dir=".") as t: t.write(b"y" * 10); t.seek(0); print(t.read())
def work(i):
    for k in range(20):
        with open(f"th{i}", "ab") as f: f.write(bytes([i]) * 1000)
ts = [threading.Thread(target=work, args=(i,)) for i in range(8)]; [t.start() for t in ts]; [t.join() for t in ts]
print([os.path.getsize(f"th{i}") for i in range(8)])
pid = os.fork()
if pid == 0:
    open("child", "w").write("c"); os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), open("child").read())
f = open("shared", "wb", buffering=0); f.write(b"1")
pid = os.fork()
if pid == 0:
    f.write(b"2"); os._exit(0)
os.waitpid(pid, 0); f.write(b"3"); print(open("shared", "rb").read())
f = open("gone", "w+"); f.write("still"); f.flush(); os.unlink("gone"); f.seek(0); print(f.read(), os.fstat(f.fileno()).st_nlink)
os.chdir("d"); print(os.path.basename(os.getcwd()), os.path.exists("../a")); os.chdir("..")
for e in sorted(os.scandir("."), key=lambda e: e.name)[:3]: print(e.name, e.is_dir(), e.stat().st_size)
import sqlite3
c = sqlite3.connect("s.db"); c.execute("create table t(a)"); c.executemany("insert into t values(?)", [(i,) for i in range(500)]); c.commit()
print(c.execute("select sum(a) from t").fetchone(), c.execute("pragma integrity_check").fetchone()); c.close()
PY
        python3 t.py
    """),
    ("make", ["make", "gcc"], r"""
        mkdir p; cd p
        printf 'int f(int x) { return x * 3; }\n' > f.c; printf '#include <stdio.h>\n#include "f.h"\nint main(void) { printf("%%d\\n", f(14)); return 0; }\n' > m.c
        printf 'int f(int x);\n' > f.h
        printf 'CFLAGS = -O1 -g\nprog: m.o f.o\n\t$(CC) -o $@ $^\nlib: f.o\n\t$(AR) rc libf.a f.o\nm.o f.o: f.h\nclean:\n\trm -f *.o prog\n' > Makefile
        make -s -j2 prog && ./prog; make prog | grep -c 'up to date'; touch f.h; make -s prog && ./prog; make -s lib && ar t libf.a; make -s clean; ls
        printf '#!/bin/sh\necho script "$1" $#\n' > s.sh; chmod +x s.sh; ./s.sh one two; sh s.sh x
    """),
    ("threads", ["gcc"], r"""
        cat > t.c <<'C'
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static volatile int is_ended;
static void *reads(void *arg) {
    char data[4096]; const int fd = open("f", O_RDONLY);
    while (!is_ended) if (pread(fd, data, sizeof(data), 0) != sizeof(data)) return "short";
    return close(fd) == 0 ? NULL : "close";
}
int main(void) {
    char data[65536] = {1}; struct timespec a, b; pthread_t thread; void *wrong = NULL;
    const int fd = open("f", O_CREAT | O_RDWR, 0644);
    if (write(fd, data, sizeof(data)) != sizeof(data)) return 1;
    pthread_create(&thread, NULL, reads, NULL);
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < 500; i++) close(open("f", O_RDONLY));
    clock_gettime(CLOCK_MONOTONIC, &b);
    is_ended = 1; pthread_join(thread, &wrong);
    /* Threads that sleep although there is work take 25 ms a turn. */
    printf("%s %s\n", wrong != NULL ? (char *)wrong : "right", b.tv_sec - a.tv_sec < 5 ? "quick" : "slow");
    return 0;
}
C
        gcc -O1 -pthread -o t t.c && ./t && ./t && ./t
    """),
    ("archives", ["gzip", "bzip2", "xz"], r"""
        seq 1 50000 > n; gzip -k n; gzip -dc n.gz | cmp - n && echo same; bzip2 -k n; bunzip2 -c n.bz2 | cmp - n && echo same
        xz -k n; xz -dc n.xz | cmp - n && echo same; rm n; gunzip n.gz; wc -l n; zcat -f n | tail -1; ls
    """),
    ("sqlite3", ["sqlite3"], r"""
        sqlite3 d.db 'create table t(a int, b text); with recursive c(x) as (select 1 union all select x+1 from c where x<5000) insert into t select x, hex(x) from c; create index i on t(a); pragma integrity_check; select count(*), sum(a) from t;'
        sqlite3 d.db 'begin; delete from t where a % 2; rollback; select count(*) from t; vacuum; pragma integrity_check;'; ls
    """),
    ("fio", ["fio"], r"""
        for engine in psync sync; do for jobs in 1 4; do
        fio --name=v --directory=. --ioengine=$engine --rw=randrw --bsrange=64-4m --bs_unaligned=1 --size=24m --numjobs=$jobs \
            --verify=crc32c --verify_fatal=1 --do_verify=1 --output=$LOCAL/fio.$engine.$jobs >/dev/null 2>&1 || echo FAILED $engine $jobs; rm -f v.*; done; done
        fio --name=b --directory=. --ioengine=psync --rw=write --bs=4m --size=32m --verify=crc32c --verify_fatal=1 --fsync=4 --output=$LOCAL/fio.b >/dev/null 2>&1 || echo FAILED b
        fio --name=b --directory=. --ioengine=pvsync --rw=randwrite --bs=4093 --bs_unaligned=1 --size=4m --verify=crc32c --verify_fatal=1 --output=$LOCAL/fio.c >/dev/null 2>&1 || echo FAILED c
        fio --name=t --directory=. --thread --numjobs=4 --ioengine=psync --rw=randrw --bs=16k --size=4m --verify=crc32c --verify_fatal=1 --output=$LOCAL/fio.t >/dev/null 2>&1 || echo FAILED t
        fio --name=r --directory=. --ioengine=psync --rw=randtrimwrite --bs=64k --size=4m --output=$LOCAL/fio.r >/dev/null 2>&1; ls
    """),
    ("dbench", ["dbench"], r"""
        dbench -t 2 -D . 4 > $LOCAL/dbench.out 2>&1; echo $?; grep -c Throughput $LOCAL/dbench.out
    """),
]


def missing(programs):
    return [program for program in programs if shutil.which(program) is None]


def run(command, env):
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=300)


def run_case(causeway, options, script):
    """Returns None if both sides agree, else what differs."""
    script = "set -u\nmkdir -p \"$BASE\" && cd \"$BASE\" || exit 99\n" + script
    with tempfile.TemporaryDirectory() as top:
        results = []
        for kind in ("local", "causeway"):
            scratch = os.path.join(top, "scratch-" + kind)
            os.mkdir(scratch)
            env = dict(os.environ, LOCAL=scratch, LC_ALL="C", TZ="UTC", TMPDIR=scratch)
            env["BASE"] = os.path.join(top, "work") if kind == "local" else "/causeway/work"
            shell = ["bash", "-c", script]
            if kind == "causeway":
                shell = [causeway, "run", "--quiet", *options, "--", *shell]
            try:
                results.append(run(shell, env))
            except subprocess.TimeoutExpired:
                return f"{kind}: no end within 300 s"
        local, ours = results
        if b"FAILED" in local.stdout:
            return f"the case itself fails on a local directory:\n{local.stdout.decode()}"
        if local.stdout != ours.stdout or local.returncode != ours.returncode:
            return (f"exit status {local.returncode} and {ours.returncode}\n--- local\n"
                    f"{local.stdout.decode(errors='replace')}{local.stderr.decode(errors='replace')}"
                    f"--- causeway\n{ours.stdout.decode(errors='replace')}"
                    f"{ours.stderr.decode(errors='replace')}")
        return None


def main():
    arguments = sys.argv[1:]
    options = []
    if "--" in arguments:
        options = arguments[arguments.index("--") + 1:]
        arguments = arguments[:arguments.index("--")]
    cases = CASES
    if "--list" in arguments:
        print("\n".join(name for name, _, _ in CASES))
        return 0
    if "--only" in arguments:
        wanted = arguments[arguments.index("--only") + 1]
        cases = [case for case in CASES if case[0] == wanted]
    causeway = os.path.abspath(arguments[0])
    failed = 0
    print(f"1..{len(cases)}", flush=True)
    for number, (name, programs, script) in enumerate(cases, 1):
        if missing(programs):
            print(f"ok {number} - {name} # SKIP not on PATH: {', '.join(missing(programs))}", flush=True)
            continue
        difference = run_case(causeway, options, script)
        print(f"{'ok' if difference is None else 'not ok'} {number} - {name}", flush=True)
        if difference is not None:
            failed += 1
            print("# " + difference.replace("\n", "\n# "), flush=True)
    return 1 if failed else 0


sys.exit(main())
