; The thread pool: one job at a time, cut into chunks that threads claim one by one: who has the job from the first on, its
; helpers from the last on. So each has the same part of every tensor from one job to the next, and finds in its own cache
; what it has written.
;
; @state holds the number of the job in its upper 24 bits, then how many chunks were claimed at the end, then how many at the
; start, 20 bits each, so that a claim is one compare-and-swap that fails if the job has changed. A thread that wakes late
; finds nothing to claim; nobody waits for it. While the fields of a new job are written @state says CLOSED, that all that
; could be there is claimed: who has seen the old state fails to swap it, and whoever sees the new fields beside the old state
; would otherwise claim a chunk of a job that is not there yet.
; Idle workers spin for a moment, then sleep on a condition variable.
;
; Who has the job claims all that is left, so it only ever waits for chunks that a worker has begun. Where that takes far
; longer than its own chunks did, the worker has lost its core to another process: jobs then run on their callers' threads
; alone for 8 times the time that was lost, 16 times where it happens again at once: a core that is free again is missed for
; no longer. The counter of cycles measures both; no unit matters.
;
; In a process with OpenMP, whose threads spin after each region, workers of the pool would compete with them for the cores.
; There its team are the workers (`mirlo_pool_team`): a job is a region of OpenMP, always of as many threads as its own, since
; its run time ends threads that a smaller region does not need. Callers then wait for a core that was taken, as for those of
; OpenMP's own regions: to run alone for a while costs more where the kernels in between need the team too.

@state = internal global i64 0, align 64
@done = internal global i32 0, align 64
@total = internal global i32 0, align 64
@limit = internal global i32 0
@function = internal global ptr null
@arguments = internal global ptr null
@busy = internal global i32 0, align 64
@sleepers = internal global i32 0, align 64
@workers = internal global i32 0
@alone_until = internal global i64 0
@alone_ticks = internal global i64 0
@patience = internal global i64 8
@team_region = internal global ptr null
@team_number = internal global ptr null
@mutex = internal global [256 x i8] zeroinitializer, align 64
@condition = internal global [256 x i8] zeroinitializer, align 64
@attributes = internal global [256 x i8] zeroinitializer, align 64

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setdetachstate(ptr, i32)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()

define internal i64 @ticks() {
  %now = TICKS
  ret i64 %now
}

; How many chunks were claimed, and how many of them at the end.
define internal { i32, i32 } @claimed(i64 %seen) {
  %low = trunc i64 %seen to i32
  %first = and i32 %low, 1048575
  %shifted = lshr i64 %seen, 20
  %high = trunc i64 %shifted to i32
  %last = and i32 %high, 1048575
  %both = add i32 %first, %last
  %one = insertvalue { i32, i32 } poison, i32 %both, 0
  %two = insertvalue { i32, i32 } %one, i32 %last, 1
  ret { i32, i32 } %two
}

; Claims and runs chunks until none is left, from the last one on where %step is the unit of what was claimed at the end.
define internal void @work(i64 %step) {
entry:
  %helps = icmp ne i64 %step, 1
  br label %look
look:
  %seen = load atomic i64, ptr @state acquire, align 8
  %counts = call { i32, i32 } @claimed(i64 %seen)
  %gone = extractvalue { i32, i32 } %counts, 0
  %last = extractvalue { i32, i32 } %counts, 1
  %total = load atomic i32, ptr @total acquire, align 4
  %left = icmp ult i32 %gone, %total
  br i1 %left, label %claim, label %out
claim:
  %next = add i64 %seen, %step
  %swap = cmpxchg ptr @state, i64 %seen, i64 %next acq_rel monotonic
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %run, label %look
run:
  ; The job cannot end, nor its fields change, before this chunk is counted as done.
  %function = load ptr, ptr @function
  %arguments = load ptr, ptr @arguments
  %all = load atomic i32, ptr @total monotonic, align 4
  %first = sub i32 %gone, %last
  %behind = add i32 %last, 1
  %back = sub i32 %all, %behind
  %chunk = select i1 %helps, i32 %back, i32 %first
  call void %function(ptr %arguments, i32 %chunk, i32 %all)
  %counted = atomicrmw add ptr @done, i32 1 acq_rel
  br label %look
out:
  ret void
}

define internal i1 @has_work(i32 %id) {
  %seen = load atomic i64, ptr @state seq_cst, align 8
  %counts = call { i32, i32 } @claimed(i64 %seen)
  %gone = extractvalue { i32, i32 } %counts, 0
  %total = load atomic i32, ptr @total monotonic, align 4
  %left = icmp ult i32 %gone, %total
  %limit = load atomic i32, ptr @limit monotonic, align 4
  %mine = icmp ult i32 %id, %limit
  %both = and i1 %left, %mine
  ret i1 %both
}

define internal ptr @worker(ptr %argument) {
entry:
  %wide = ptrtoint ptr %argument to i64
  %id = trunc i64 %wide to i32
  br label %spin
spin:
  %count = phi i32 [ 0, %entry ], [ 0, %worked ], [ %more, %again ], [ 0, %awake ]
  %ready = call i1 @has_work(i32 %id)
  br i1 %ready, label %worked, label %again
worked:
  call void @work(i64 1048576)
  br label %spin
again:
  call void @relax()
  %more = add i32 %count, 1
  %tired = icmp ugt i32 %more, SPINS
  br i1 %tired, label %sleep, label %spin
sleep:
  %locked = call i32 @pthread_mutex_lock(ptr @mutex)
  %entered = atomicrmw add ptr @sleepers, i32 1 seq_cst
  br label %doze
doze:
  %late = call i1 @has_work(i32 %id)
  br i1 %late, label %awake, label %wait
wait:
  %woken = call i32 @pthread_cond_wait(ptr @condition, ptr @mutex)
  br label %doze
awake:
  %left = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  %unlocked = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %spin
}

define internal void @relax() {
  PAUSE
  ret void
}

; Has at least so many workers; called under a lock of the caller. Returns how many there are.
define i32 @mirlo_pool_start(i32 %wanted) {
entry:
  %attr = call i32 @pthread_attr_init(ptr @attributes)
  %detached = call i32 @pthread_attr_setdetachstate(ptr @attributes, i32 DETACHED)
  %have = load i32, ptr @workers
  %thread = alloca i64
  br label %loop
loop:
  %id = phi i32 [ %have, %entry ], [ %following, %started ]
  %lacks = icmp ult i32 %id, %wanted
  br i1 %lacks, label %start, label %out
start:
  %wide = zext i32 %id to i64
  %argument = inttoptr i64 %wide to ptr
  %failed = call i32 @pthread_create(ptr %thread, ptr @attributes, ptr @worker, ptr %argument)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %started, label %out
started:
  %made = load i64, ptr %thread
  call void @affinity_started(i32 %id, i64 %made)
  %following = add i32 %id, 1
  store atomic i32 %following, ptr @workers release, align 4
  br label %loop
out:
  ret i32 %id
}

; Has jobs run by a team of OpenMP: its GOMP_parallel and omp_get_thread_num.
define void @mirlo_pool_team(ptr %region, ptr %number) {
  store ptr %number, ptr @team_number
  store atomic ptr %region, ptr @team_region release, align 8
  store atomic i64 0, ptr @alone_until monotonic, align 8
  ret void
}

; What each thread of the team runs: the caller has number 0; no more of the others help than the job asks for.
define internal void @member(ptr %helpers) {
entry:
  %number = load ptr, ptr @team_number
  %id = call i32 %number()
  %leads = icmp eq i32 %id, 0
  br i1 %leads, label %lead, label %follow
lead:
  call void @work(i64 1)
  ret void
follow:
  %most = load i32, ptr %helpers
  %few = icmp ule i32 %id, %most
  br i1 %few, label %help, label %out
help:
  call void @work(i64 1048576)
  ret void
out:
  ret void
}

; Makes the pool empty: at first use, and in the child of a fork, which has none of its parent's threads.
define void @mirlo_pool_reset() {
  store i64 0, ptr @state
  store i32 0, ptr @total
  store i32 0, ptr @done
  store i32 0, ptr @limit
  store i32 0, ptr @busy
  store i32 0, ptr @sleepers
  store i32 0, ptr @workers
  store i64 0, ptr @alone_until
  store i64 0, ptr @alone_ticks
  store i64 8, ptr @patience
  store ptr null, ptr @team_region
  %mutex = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %condition = call i32 @pthread_cond_init(ptr @condition, ptr null)
  ret void
}

; Runs function(arguments, chunk, chunks) for every chunk, on at most so many threads, this one included.
define void @mirlo_parallel(ptr %function, ptr %arguments, i32 %chunks, i32 %threads) {
entry:
  %helps = alloca i32
  %several = icmp ugt i32 %chunks, 1
  %many = icmp ugt i32 %threads, 1
  %counted = icmp ult i32 %chunks, 1048575
  %shared = and i1 %several, %many
  %parallel = and i1 %shared, %counted
  br i1 %parallel, label %look, label %serial
look:
  %begun = call i64 @ticks()
  %until = load atomic i64, ptr @alone_until monotonic, align 8
  %lonely = icmp ult i64 %begun, %until
  br i1 %lonely, label %serial, label %try
try:
  %swap = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %swap, 1
  br i1 %mine, label %post, label %serial
serial:
  ; One thread, or more chunks than are counted, or cores that others have taken, or the pool serves another caller: waiting
  ; for it would take longer than the work.
  %i = phi i32 [ 0, %entry ], [ 0, %look ], [ 0, %try ], [ %i1, %body ]
  %more = icmp ult i32 %i, %chunks
  br i1 %more, label %body, label %out
body:
  call void %function(ptr %arguments, i32 %i, i32 %chunks)
  %i1 = add i32 %i, 1
  br label %serial
post:
  %old = load atomic i64, ptr @state monotonic, align 8
  %number = lshr i64 %old, 40
  %next = add i64 %number, 1
  %fresh = shl i64 %next, 40
  %closed = or i64 %fresh, 1099511627775
  store atomic i64 %closed, ptr @state seq_cst, align 8
  store ptr %function, ptr @function
  store ptr %arguments, ptr @arguments
  store atomic i32 0, ptr @done monotonic, align 4
  %helpers = sub i32 %threads, 1
  store i32 %helpers, ptr %helps
  %region = load atomic ptr, ptr @team_region acquire, align 8
  %own_pool = icmp eq ptr %region, null
  %limit = select i1 %own_pool, i32 %helpers, i32 0
  store atomic i32 %limit, ptr @limit monotonic, align 4
  store atomic i32 %chunks, ptr @total release, align 4
  store atomic i64 %fresh, ptr @state seq_cst, align 8
  br i1 %own_pool, label %call, label %team
team:
  call void %region(ptr @member, ptr %helps, i32 0, i32 0)
  br label %joined
call:
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %wake, label %share
wake:
  %running = load atomic i32, ptr @workers acquire, align 4
  call void @affinity_place(i32 %running)
  %locked = call i32 @pthread_mutex_lock(ptr @mutex)
  %told = call i32 @pthread_cond_broadcast(ptr @condition)
  %unlocked = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %share
share:
  call void @work(i64 1)
  br label %joined
joined:
  %worked = call i64 @ticks()
  br label %wait
wait:
  %turns = phi i32 [ 0, %joined ], [ %turn, %again ], [ 0, %yield ]
  %slow = phi i1 [ false, %joined ], [ %slow, %again ], [ true, %yield ]
  %count = load atomic i32, ptr @done acquire, align 4
  %all = icmp eq i32 %count, %chunks
  br i1 %all, label %ended, label %again
again:
  call void @relax()
  %turn = add i32 %turns, 1
  %long = icmp ugt i32 %turn, SPINS
  br i1 %long, label %yield, label %wait
yield:
  ; A worker that has a chunk may have lost this core to its caller.
  %yielded = call i32 @sched_yield()
  br label %wait
ended:
  br i1 %slow, label %judge, label %finish
judge:
  %now = call i64 @ticks()
  %lost = sub i64 %now, %worked
  %own = sub i64 %worked, %begun
  ; Of its own chunks the caller had about a share of all. A worker may take as long for one, and longer where there are few
  ; and they are unequal: one of 135 rows beside one of 61 is no lost core, for which a worker waits for milliseconds.
  %patiently = shl i64 %own, 2
  %enough = icmp ugt i64 %lost, %patiently
  br i1 %enough, label %retreat, label %finish
retreat:
  %old_ticks = load i64, ptr @alone_ticks
  %again_by = add i64 %until, %old_ticks
  %soon = icmp ult i64 %now, %again_by
  %old_patience = load i64, ptr @patience
  %doubled = shl i64 %old_patience, 1
  %capped = call i64 @llvm.umin.i64(i64 %doubled, i64 16)
  %patience = select i1 %soon, i64 %capped, i64 8
  store i64 %patience, ptr @patience
  %rest = mul i64 %lost, %patience
  store i64 %rest, ptr @alone_ticks
  %end = add i64 %now, %rest
  store atomic i64 %end, ptr @alone_until monotonic, align 8
  br label %finish
finish:
  store atomic i32 0, ptr @busy release, align 4
  br label %out
out:
  ret void
}

declare i64 @llvm.umin.i64(i64, i64)
