; Which cores the workers of the pool run on: all but the caller's, divided among them.
;
; A thread that is woken tends to be put on the core of the one that wakes it, where it waits until that one sleeps. So
; before sleeping workers are woken, the cores that the process may use, without the caller's, are dealt out to them: one
; each where there are as many threads as cores, else several to choose from. @cores is in an order in which neighbours
; share no physical core. Who sets the mask of a worker from outside is left alone: it is not set again.

@cores = internal global [1024 x i32] zeroinitializer
@core_count = internal global i32 0
@caller_core = internal global i32 -1
@threads = internal global [1024 x i64] zeroinitializer
@masks = internal global [1024 x [128 x i8]] zeroinitializer, align 64
@foreign = internal global i32 0

declare i32 @sched_getcpu()
declare i32 @pthread_getaffinity_np(i64, i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i32 @memcmp(ptr, ptr, i64)

; Says which cores there are; at the start, and after a fork.
define void @mirlo_pool_cores(ptr %list, i32 %count) {
entry:
  store i32 -1, ptr @caller_core
  store i32 0, ptr @foreign
  br label %next
next:
  %i = phi i32 [ 0, %entry ], [ %i1, %copy ]
  %full = icmp uge i32 %i, 1024
  %end = icmp uge i32 %i, %count
  %stop = or i1 %full, %end
  br i1 %stop, label %out, label %copy
copy:
  %from = getelementptr i32, ptr %list, i32 %i
  %core = load i32, ptr %from
  %to = getelementptr i32, ptr @cores, i32 %i
  store i32 %core, ptr %to
  %i1 = add i32 %i, 1
  br label %next
out:
  store i32 %i, ptr @core_count
  ret void
}

; Remembers a worker that was started, and the mask that it has.
define internal void @affinity_started(i32 %id, i64 %thread) {
entry:
  %fits = icmp ult i32 %id, 1024
  br i1 %fits, label %keep, label %out
keep:
  %slot = getelementptr i64, ptr @threads, i32 %id
  store i64 %thread, ptr %slot
  %mask = getelementptr [128 x i8], ptr @masks, i32 %id
  %failed = call i32 @pthread_getaffinity_np(i64 %thread, i64 128, ptr %mask)
  store i32 -1, ptr @caller_core
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %foreign, label %out
foreign:
  store i32 1, ptr @foreign
  br label %out
out:
  ret void
}

; Keeps so many workers off the core of the caller, who holds the pool.
define internal void @affinity_place(i32 %workers) {
entry:
  %mask = alloca [128 x i8], align 64
  %here = call i32 @sched_getcpu()
  %was = load i32, ptr @caller_core
  %same = icmp eq i32 %here, %was
  %foreign = load i32, ptr @foreign
  %hands_off = icmp ne i32 %foreign, 0
  %count = load i32, ptr @core_count
  %others = sub i32 %count, 1
  %few = icmp slt i32 %others, %workers
  %many = icmp ugt i32 %workers, 1024
  %a = or i1 %same, %hands_off
  %b = or i1 %few, %many
  %leave = or i1 %a, %b
  br i1 %leave, label %out, label %find
find:
  %p = phi i32 [ 0, %entry ], [ %p1, %seek ]
  %missing = icmp uge i32 %p, %count
  br i1 %missing, label %out, label %seek
seek:
  %at = getelementptr i32, ptr @cores, i32 %p
  %core = load i32, ptr %at
  %p1 = add i32 %p, 1
  %found = icmp eq i32 %core, %here
  br i1 %found, label %place, label %find
place:
  store i32 %here, ptr @caller_core
  br label %worker
worker:
  %w = phi i32 [ 0, %place ], [ %w1, %placed ]
  %left = icmp ult i32 %w, %workers
  br i1 %left, label %check, label %out
check:
  %slot = getelementptr i64, ptr @threads, i32 %w
  %thread = load i64, ptr %slot
  %kept = getelementptr [128 x i8], ptr @masks, i32 %w
  %unknown = call i32 @pthread_getaffinity_np(i64 %thread, i64 128, ptr %mask)
  %differs = call i32 @memcmp(ptr %mask, ptr %kept, i64 128)
  %either = or i32 %unknown, %differs
  %changed = icmp ne i32 %either, 0
  br i1 %changed, label %give_up, label %fill
fill:
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  br label %deal
deal:
  %j = phi i32 [ %w, %fill ], [ %j1, %set ]
  %more = icmp ult i32 %j, %others
  br i1 %more, label %set, label %pin
set:
  %after = add i32 %p1, %j
  %index = urem i32 %after, %count
  %place_of = getelementptr i32, ptr @cores, i32 %index
  %chosen = load i32, ptr %place_of
  %byte = lshr i32 %chosen, 3
  %bit = and i32 %chosen, 7
  %narrow = trunc i32 %bit to i8
  %one = shl i8 1, %narrow
  %address = getelementptr i8, ptr %mask, i32 %byte
  %old = load i8, ptr %address
  %new = or i8 %old, %one
  store i8 %new, ptr %address
  %j1 = add i32 %j, %workers
  br label %deal
pin:
  %refused = call i32 @pthread_setaffinity_np(i64 %thread, i64 128, ptr %mask)
  %no = icmp ne i32 %refused, 0
  br i1 %no, label %give_up, label %placed
placed:
  call void @llvm.memcpy.p0.p0.i64(ptr %kept, ptr %mask, i64 128, i1 false)
  %w1 = add i32 %w, 1
  br label %worker
give_up:
  store i32 1, ptr @foreign
  br label %out
out:
  ret void
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
