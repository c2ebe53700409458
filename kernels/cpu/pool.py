"""Threads of native code that share out the work of a call: awake for a moment after each, then parked.

Waking a thread that sleeps takes tens of microseconds, and handing it the interpreter's lock more; a call of a kernel
often takes less. So workers are threads of the operating system that never see Python. They watch a number change for
some hundred microseconds, then wait for a condition. The caller publishes a job, wakes those who sleep, works itself,
and closes the job; it waits only for workers that have joined by then, so that one who is late holds nobody up.

A worker takes the same part of the rows in every call, whose data may still lie in its caches, and then what is left
of the others'. Which thread computes a row never changes a bit of it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import struct
import sys
import threading
from collections.abc import Sequence
from functools import lru_cache
from string import Template
from typing import Any, cast

from redalg.kernels.cpu.build import loaded_text

CHUNKS = 4  # of a worker's part: what others take over when it is held up
FEW = 8  # workers that are told where to run
SPINS = 4000  # looks at the number, with a pause between two: 0.1 to 0.2 ms
LINE = 64  # bytes
PART = 16  # lines before the parts of workers
# Say that this is a loop that waits: what is called, and with what.
X86, ARM = ("@llvm.x86.sse2.pause", "", ""), ("@llvm.aarch64.hint", "i32", "i32 1")
PAUSE = {"x86_64": X86, "amd64": X86, "aarch64": ARM, "arm64": ARM}

# The state of a pool in lines: 0 number of the job, 1 whether it is open, 2 workers that have joined, 3 sleepers, 4
# whether a caller has the pool, 5 the job (functions, arguments, total, chunks of a part, workers), 6 its status, 7
# whether workers are to end, 8 and 10 a mutex and a condition, 12 the processor that workers keep off (plus 1), and
# one of each worker: what of its part is taken, its number, the state, its thread. Numbers of jobs against sleepers,
# and `open` against joined workers: each side writes one and then reads the other, in one order for all (seq_cst), so
# that at least one of them sees what the other wrote.
TEXT = """
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()
declare void ${DECLARED}

; all stages of a job for rows low to high: row by row, so that what is read again is still in the caches, or at once
define i32 @redalg_range(ptr %job, ptr %args, i64 %low, i64 %high) {
entry:
  %stages = load i64, ptr %job
  %mode.at = getelementptr i64, ptr %job, i64 1
  %mode = load i64, ptr %mode.at
  %whole = sub i64 %high, %low
  %one = icmp ne i64 %mode, 0
  %step = select i1 %one, i64 1, i64 %whole
  %some = icmp sgt i64 %whole, 0
  br i1 %some, label %rows, label %done
rows:
  %row = phi i64 [ %low, %entry ], [ %next, %turned ]
  %status = phi i32 [ 0, %entry ], [ %found, %turned ]
  %next = add i64 %row, %step
  br label %stage
stage:
  %s = phi i64 [ 0, %rows ], [ %s.next, %stage ]
  %before = phi i32 [ %status, %rows ], [ %found, %stage ]
  %twice = shl i64 %s, 1
  %f.index = add i64 %twice, 2
  %n.index = add i64 %twice, 3
  %f.at = getelementptr i64, ptr %job, i64 %f.index
  %n.at = getelementptr i64, ptr %job, i64 %n.index
  %f = load ptr, ptr %f.at
  %n = load i64, ptr %n.at
  %from = mul i64 %row, %n
  %to = mul i64 %next, %n
  %gave = call i32 %f(ptr %args, i64 %from, i64 %to)
  %found = or i32 %before, %gave
  %s.next = add i64 %s, 1
  %more = icmp slt i64 %s.next, %stages
  br i1 %more, label %stage, label %turned
turned:
  %again = icmp slt i64 %next, %high
  br i1 %again, label %rows, label %done
done:
  %result = phi i32 [ 0, %entry ], [ %found, %turned ]
  ret i32 %result
}

; a worker's part, then the others'
define internal i32 @work(ptr %state, i64 %w) {
entry:
  %fields = getelementptr i8, ptr %state, i64 320
  %job = load ptr, ptr %fields
  %args.at = getelementptr i64, ptr %fields, i64 1
  %args = load ptr, ptr %args.at
  %total.at = getelementptr i64, ptr %fields, i64 2
  %total = load i64, ptr %total.at
  %per.at = getelementptr i64, ptr %fields, i64 3
  %per = load i64, ptr %per.at
  %workers.at = getelementptr i64, ptr %fields, i64 4
  %workers = load i64, ptr %workers.at
  %chunks = mul i64 %workers, %per
  %member = icmp slt i64 %w, %workers
  br i1 %member, label %part, label %none
none:
  ret i32 0
part:
  %k = phi i64 [ 0, %entry ], [ %k.next, %taken ]
  %known = phi i32 [ 0, %entry ], [ %status, %taken ]
  %sum = add i64 %w, %k
  %v = urem i64 %sum, %workers
  %line = add i64 %v, ${PART}
  %offset = mul i64 %line, 64
  %next = getelementptr i8, ptr %state, i64 %offset
  %first = mul i64 %v, %per
  br label %chunk
chunk:
  %status = phi i32 [ %known, %part ], [ %found, %compute ]
  %c = atomicrmw add ptr %next, i64 1 monotonic
  %left = icmp slt i64 %c, %per
  br i1 %left, label %compute, label %taken
compute:
  %index = add i64 %first, %c
  %after = add i64 %index, 1
  %a = mul i64 %total, %index
  %b = mul i64 %total, %after
  %low = udiv i64 %a, %chunks
  %high = udiv i64 %b, %chunks
  %gave = call i32 @redalg_range(ptr %job, ptr %args, i64 %low, i64 %high)
  %found = or i32 %status, %gave
  br label %chunk
taken:
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %workers
  br i1 %more, label %part, label %done
done:
  ret i32 %status
}

; the life of a worker
define internal ptr @worker(ptr %line) {
entry:
  %w.at = getelementptr i64, ptr %line, i64 1
  %w = load i64, ptr %w.at
  %state.at = getelementptr i64, ptr %line, i64 2
  %state = load ptr, ptr %state.at
  %open.at = getelementptr i8, ptr %state, i64 64
  %joined.at = getelementptr i8, ptr %state, i64 128
  %sleepers.at = getelementptr i8, ptr %state, i64 192
  %status.at = getelementptr i8, ptr %state, i64 384
  %stop.at = getelementptr i8, ptr %state, i64 448
  %mutex = getelementptr i8, ptr %state, i64 512
  %condition = getelementptr i8, ptr %state, i64 640
  br label %wait
wait:
  %seen = phi i64 [ 0, %entry ], [ %number, %left ]
  br label %look
look:
  %spins = phi i64 [ 0, %wait ], [ %spins.next, %again ]
  %spun = load atomic i64, ptr %state acquire, align 8
  %changed = icmp ne i64 %spun, %seen
  br i1 %changed, label %join, label %again
again:
  call void ${PAUSE}
  %spins.next = add i64 %spins, 1
  %on = icmp slt i64 %spins.next, ${SPINS}
  br i1 %on, label %look, label %park
park:
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  %more.sleepers = atomicrmw add ptr %sleepers.at, i64 1 seq_cst
  br label %asleep
asleep:
  %slept = load atomic i64, ptr %state seq_cst, align 8
  %woken = icmp ne i64 %slept, %seen
  br i1 %woken, label %wake, label %sleep
sleep:
  %waited = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %asleep
wake:
  %fewer.sleepers = atomicrmw sub ptr %sleepers.at, i64 1 seq_cst
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %join
join:
  %number = phi i64 [ %spun, %look ], [ %slept, %wake ]
  %stop = load atomic i64, ptr %stop.at acquire, align 8
  %ending = icmp ne i64 %stop, 0
  br i1 %ending, label %end, label %enter
end:
  ret ptr null
enter:
  %more.joined = atomicrmw add ptr %joined.at, i64 1 seq_cst
  %open = load atomic i64, ptr %open.at seq_cst, align 8
  %is.open = icmp ne i64 %open, 0
  br i1 %is.open, label %working, label %left
working:
  %found = call i32 @work(ptr %state, i64 %w)
  %told = atomicrmw or ptr %status.at, i32 %found monotonic
  br label %left
left:
  %fewer.joined = atomicrmw sub ptr %joined.at, i64 1 seq_cst
  br label %wait
}

define i32 @redalg_start(ptr %state, i64 %workers) {
entry:
  %mutex = getelementptr i8, ptr %state, i64 512
  %condition = getelementptr i8, ptr %state, i64 640
  %a = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %b = call i32 @pthread_cond_init(ptr %condition, ptr null)
  br label %each
each:
  %w = phi i64 [ 1, %entry ], [ %w.next, %make ]
  %more = icmp slt i64 %w, %workers
  br i1 %more, label %make, label %done
make:
  %n = add i64 %w, ${PART}
  %offset = mul i64 %n, 64
  %line = getelementptr i8, ptr %state, i64 %offset
  %w.at = getelementptr i64, ptr %line, i64 1
  store i64 %w, ptr %w.at
  %state.at = getelementptr i64, ptr %line, i64 2
  store ptr %state, ptr %state.at
  %thread = getelementptr i64, ptr %line, i64 3
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %line)
  %w.next = add i64 %w, 1
  %sound = icmp eq i32 %failed, 0
  br i1 %sound, label %each, label %done
done:
  %made = phi i64 [ %w, %each ], [ %w, %make ]
  %result = trunc i64 %made to i32
  ret i32 %result
}

define internal void @tell(ptr %state) {
entry:
  %number = atomicrmw add ptr %state, i64 1 seq_cst
  %sleepers.at = getelementptr i8, ptr %state, i64 192
  %sleepers = load atomic i64, ptr %sleepers.at seq_cst, align 8
  %some = icmp ne i64 %sleepers, 0
  br i1 %some, label %wake, label %done
wake:
  %mutex = getelementptr i8, ptr %state, i64 512
  %condition = getelementptr i8, ptr %state, i64 640
  %a = call i32 @pthread_mutex_lock(ptr %mutex)
  %b = call i32 @pthread_cond_broadcast(ptr %condition)
  %c = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %done
done:
  ret void
}

define i32 @redalg_stop(ptr %state, i64 %workers) {
entry:
  %stop.at = getelementptr i8, ptr %state, i64 448
  store atomic i64 1, ptr %stop.at seq_cst, align 8
  call void @tell(ptr %state)
  br label %each
each:
  %w = phi i64 [ 1, %entry ], [ %w.next, %join ]
  %more = icmp slt i64 %w, %workers
  br i1 %more, label %join, label %done
join:
  %n = add i64 %w, ${PART}
  %offset = mul i64 %n, 64
  %line = getelementptr i8, ptr %state, i64 %offset
  %thread.at = getelementptr i64, ptr %line, i64 3
  %thread = load i64, ptr %thread.at
  %joined = call i32 @pthread_join(i64 %thread, ptr null)
  %w.next = add i64 %w, 1
  br label %each
done:
  ret i32 0
}

; a job for all workers; alone where another caller has them
define i32 @redalg_share(ptr %state, ptr %job, ptr %args, i64 %total, i64 %per, i64 %workers) {
entry:
  %busy.at = getelementptr i8, ptr %state, i64 256
  %had = cmpxchg ptr %busy.at, i64 0, i64 1 seq_cst seq_cst
  %mine = extractvalue { i64, i1 } %had, 1
  br i1 %mine, label %fill, label %alone
alone:
  %own = call i32 @redalg_range(ptr %job, ptr %args, i64 0, i64 %total)
  ret i32 %own
fill:
  %fields = getelementptr i8, ptr %state, i64 320
  store ptr %job, ptr %fields
  %args.at = getelementptr i64, ptr %fields, i64 1
  store ptr %args, ptr %args.at
  %total.at = getelementptr i64, ptr %fields, i64 2
  store i64 %total, ptr %total.at
  %per.at = getelementptr i64, ptr %fields, i64 3
  store i64 %per, ptr %per.at
  %workers.at = getelementptr i64, ptr %fields, i64 4
  store i64 %workers, ptr %workers.at
  %status.at = getelementptr i8, ptr %state, i64 384
  store i32 0, ptr %status.at
  br label %parts
parts:
  %v = phi i64 [ 0, %fill ], [ %v.next, %parts ]
  %n = add i64 %v, ${PART}
  %offset = mul i64 %n, 64
  %next = getelementptr i8, ptr %state, i64 %offset
  store i64 0, ptr %next
  %v.next = add i64 %v, 1
  %more = icmp slt i64 %v.next, %workers
  br i1 %more, label %parts, label %begin
begin:
  call void @apart(ptr %state, i64 %workers)
  %open.at = getelementptr i8, ptr %state, i64 64
  store atomic i64 1, ptr %open.at seq_cst, align 8
  call void @tell(ptr %state)
  %first = call i32 @work(ptr %state, i64 0)
  store atomic i64 0, ptr %open.at seq_cst, align 8
  %joined.at = getelementptr i8, ptr %state, i64 128
  br label %wait
wait:
  %spins = phi i64 [ 0, %begin ], [ %spins.next, %rest ]
  %joined = load atomic i64, ptr %joined.at seq_cst, align 8
  %over = icmp eq i64 %joined, 0
  br i1 %over, label %done, label %pause
pause:
  call void ${PAUSE}
  %spins.next = add i64 %spins, 1
  %long = icmp sgt i64 %spins.next, ${SPINS}
  br i1 %long, label %yield, label %rest
yield:
  %yielded = call i32 @sched_yield()
  br label %rest
rest:
  br label %wait
done:
  %others = load i32, ptr %status.at
  %status = or i32 %first, %others
  store atomic i64 0, ptr %busy.at release, align 8
  ret i32 %status
}

; jobs one after the other, until one fails; of each a pool, a job, its total, chunks of a part, and workers: one of
; them is the caller, who then needs no pool
define i32 @redalg_jobs(ptr %jobs, ptr %args, i64 %low, i64 %high) {
entry:
  %count = load i64, ptr %jobs
  %first = getelementptr i64, ptr %jobs, i64 1
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %did ]
  %at = phi ptr [ %first, %entry ], [ %after, %did ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %job, label %done
job:
  %state = load ptr, ptr %at
  %job.at = getelementptr i64, ptr %at, i64 1
  %own = load ptr, ptr %job.at
  %total.at = getelementptr i64, ptr %at, i64 2
  %total = load i64, ptr %total.at
  %per.at = getelementptr i64, ptr %at, i64 3
  %per = load i64, ptr %per.at
  %workers.at = getelementptr i64, ptr %at, i64 4
  %workers = load i64, ptr %workers.at
  %several = icmp sgt i64 %workers, 1
  br i1 %several, label %shared, label %alone
shared:
  %gave.shared = call i32 @redalg_share(ptr %state, ptr %own, ptr %args, i64 %total, i64 %per, i64 %workers)
  br label %did
alone:
  %gave.alone = call i32 @redalg_range(ptr %own, ptr %args, i64 0, i64 %total)
  br label %did
did:
  %gave = phi i32 [ %gave.shared, %shared ], [ %gave.alone, %alone ]
  %k.next = add i64 %k, 1
  %after = getelementptr i64, ptr %at, i64 5
  %sound = icmp eq i32 %gave, 0
  br i1 %sound, label %next, label %done
done:
  %status = phi i32 [ 0, %next ], [ %gave, %did ]
  ret i32 %status
}
"""
# A system that is busy looks for no idle processor when it wakes a thread: on two processors a worker waits behind the
# caller itself for milliseconds. So it may run anywhere else, which is told whenever the caller has moved.
ELSEWHERE = """
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)

define internal void @apart(ptr %state, i64 %workers) {
entry:
  %mask = alloca [16 x i64]
  %few = icmp sle i64 %workers, ${FEW}
  br i1 %few, label %ask, label %done
ask:
  %cpu.small = call i32 @sched_getcpu()
  %cpu = sext i32 %cpu.small to i64
  %known = icmp ult i64 %cpu, 1024
  br i1 %known, label %compare, label %done
compare:
  %off.at = getelementptr i8, ptr %state, i64 768
  %off = load i64, ptr %off.at
  %code = add i64 %cpu, 1
  %same = icmp eq i64 %off, %code
  br i1 %same, label %done, label %moved
moved:
  store i64 %code, ptr %off.at
  store [16 x i64] zeroinitializer, ptr %mask
  %failed = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %sound = icmp eq i32 %failed, 0
  br i1 %sound, label %clear, label %done
clear:
  %word = lshr i64 %cpu, 6
  %place = and i64 %cpu, 63
  %bit = shl i64 1, %place
  %others = xor i64 %bit, -1
  %word.at = getelementptr i64, ptr %mask, i64 %word
  %allowed = load i64, ptr %word.at
  %cleared = and i64 %allowed, %others
  store i64 %cleared, ptr %word.at
  %all = load i1024, ptr %mask
  %some = icmp ne i1024 %all, 0
  br i1 %some, label %each, label %done
each:
  %w = phi i64 [ 1, %clear ], [ %w.next, %set ]
  %more = icmp slt i64 %w, %workers
  br i1 %more, label %set, label %done
set:
  %n = add i64 %w, ${PART}
  %offset = mul i64 %n, 64
  %line = getelementptr i8, ptr %state, i64 %offset
  %thread.at = getelementptr i64, ptr %line, i64 3
  %thread = load i64, ptr %thread.at
  %gave = call i32 @pthread_setaffinity_np(i64 %thread, i64 128, ptr %mask)
  %w.next = add i64 %w, 1
  br label %each
done:
  ret void
}
"""
ANYWHERE = "define internal void @apart(ptr %state, i64 %workers) {\n  ret void\n}\n"
NAMES = ("redalg_range", "redalg_start", "redalg_stop", "redalg_share", "redalg_jobs")
_LOCK = threading.Lock()
_POOLS: dict[int, Any] = {}


@lru_cache(maxsize=1)
def available() -> bool:
    """Whether this system has POSIX threads, and a processor whose word for a pause is known."""
    return os.name == "posix" and os.uname().machine.lower() in PAUSE


@lru_cache(maxsize=1)
def _native() -> dict[str, int]:
    """Where the functions of the text lie."""
    pause, takes, given = PAUSE[os.uname().machine.lower()]
    text = Template(TEXT + (ELSEWHERE if sys.platform == "linux" else ANYWHERE))
    words = {"PAUSE": f"{pause}({given})", "DECLARED": f"{pause}({takes})", "PART": PART, "SPINS": SPINS, "FEW": FEW}
    return loaded_text(text.substitute(words), NAMES)


class _Words:
    """Words that a function of the text takes, beside arguments and a range of rows: what it is to do."""

    function: str

    def __init__(self, *words: int) -> None:
        self.words, self._run = struct.pack(f"{len(words)}q", *words), cast(Any, None)
        self._lying = ctypes.create_string_buffer(self.words, len(self.words))
        self.address = ctypes.addressof(self._lying)

    @property
    def entry(self) -> int:
        """Where the function lies."""
        return _native()[self.function]

    def run(self, values: bytes, total: int = 0) -> int:
        """Call the function for rows 0 to `total`; its status."""
        if self._run is None:
            word, long = ctypes.c_char_p, ctypes.c_int64
            self._run = ctypes.CFUNCTYPE(ctypes.c_int32, word, word, long, long)(self.entry)
        status: int = self._run(self.words, values, 0, total)
        return status


class Job(_Words):
    """Functions that run one after the other for a range of rows; each takes `per` times the range.

    `each`: all of them for one row before any of them for the next. It is run by the caller alone.
    """

    function = "redalg_range"

    def __init__(self, stages: Sequence[tuple[int, int]], each: bool) -> None:
        super().__init__(len(stages), each, *(w for pair in stages for w in pair))


class Jobs(_Words):
    """Jobs one after the other, each for rows 0 to its total by at most so many workers of a pool; the first status
    that is not 0 ends them."""

    function = "redalg_jobs"

    def __init__(self, pool: Pool, jobs: Sequence[tuple[Job, int, int]]) -> None:
        self.pool, self._jobs = pool, [job for job, _, _ in jobs]  # which must stay where they are
        words = [(job.address, total, *pool.shares(total, workers)) for job, total, workers in jobs]
        super().__init__(len(jobs), *(w for each in words for w in (pool.state, *each)))


class Pool:
    """Workers of native code, the caller among them.

    >>> pool = pool_of(3)
    >>> pool.share(Job([], False), b"", 0)
    0
    """

    def __init__(self, workers: int) -> None:
        found = _native()
        word, long = ctypes.c_void_p, ctypes.c_int64
        self._share: Any = ctypes.CFUNCTYPE(ctypes.c_int32, word, ctypes.c_char_p, ctypes.c_char_p, long, long, long)(
            found["redalg_share"]
        )
        self._memory = ctypes.create_string_buffer((PART + workers + 1) * LINE)
        self.state = -(-ctypes.addressof(self._memory) // LINE) * LINE
        one = ctypes.CFUNCTYPE(ctypes.c_int32, word, long)
        self._stop = one(found["redalg_stop"])
        with _without_signals():
            self.workers = int(one(found["redalg_start"])(self.state, workers))

    def share(self, job: Job, values: bytes, total: int, most: int = 1 << 20) -> int:
        """Run the job for rows 0 to `total`, by at most so many workers; its status."""
        per, workers = self.shares(total, most)
        return int(self._share(self.state, job.words, values, total, per, workers)) if workers else 0

    def shares(self, total: int, most: int) -> tuple[int, int]:
        """Chunks of a worker's part, and how many of at most so many workers there is something to do for."""
        workers = min(self.workers, total, most)
        return min(CHUNKS, total // workers) if workers else 0, workers

    def stop(self) -> None:
        """Let the workers end; later jobs are the caller's alone."""
        workers, self.workers = self.workers, 1
        self._stop(self.state, workers)


class _without_signals:
    """Threads that are started inherit what signals are blocked: those are for the interpreter's own."""

    def __enter__(self) -> None:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

    def __exit__(self, *why: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def pool_of(workers: int) -> Pool:
    """The pool of so many workers."""
    found = _POOLS.get(workers)
    if found is None:
        with _LOCK:
            found = _POOLS.get(workers)
            if found is None:
                found = _POOLS[workers] = Pool(workers)
    return cast(Pool, found)


def _ended() -> None:
    """No worker may run when what it runs is taken down."""
    with _LOCK:
        for pool in _POOLS.values():
            pool.stop()


_OF_PARENTS: list[Pool] = []  # whose memory is kept, and whose threads are not here


def _forked() -> None:
    global _LOCK
    _LOCK = threading.Lock()
    _OF_PARENTS.extend(_POOLS.values())
    _POOLS.clear()


atexit.register(_ended)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
