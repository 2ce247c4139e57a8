; Calls of the library for regions. Words in capitals are numbers: addresses, and what `trampoline.py` says.

%tensor = type { ptr, i32, i32, i32, i8, i8, i16, ptr, ptr, i64 }
%bound = type { i64, i64, ptr }
%step = type { ptr, i64, ptr }
%table = type { ptr, i64, ptr, i64, ptr }
%axis = type { i64, i64 }
%entry = type { ptr, ptr }
%state = type { i64, ptr, i64, ptr, i64, ptr, ptr }
%call = type { ptr, ptr, i64, i32 }

declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_trylock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)

; In the child of a fork, the threads that the library made for the forking thread are gone, and it would wait for them
; for ever: it is called on a fresh thread there, which has none yet.
define i32 @entry(ptr %state, ptr %tensors, i64 %count) {
entry:
  %expected = load i64, ptr %state
  %fits = icmp eq i64 %expected, %count
  br i1 %fits, label %where, label %wrong
wrong:
  ret i32 WRONG_COUNT
where:
  %forked = load volatile i64, ptr inttoptr (i64 FORKED to ptr)
  %here = icmp eq i64 %forked, 0
  br i1 %here, label %direct, label %elsewhere
direct:
  %done = tail call i32 @locked(ptr %state, ptr %tensors)
  ret i32 %done
elsewhere:
  %thread = alloca i64
  %frame = alloca %call
  %p1 = getelementptr %call, ptr %frame, i32 0, i32 1
  %p3 = getelementptr %call, ptr %frame, i32 0, i32 3
  store ptr %state, ptr %frame
  store ptr %tensors, ptr %p1
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @on_thread, ptr %frame)
  %created = icmp eq i32 %failed, 0
  br i1 %created, label %join, label %refused
refused:
  ret i32 NO_THREAD
join:
  %id = load i64, ptr %thread
  %joined = call i32 @pthread_join(i64 %id, ptr null)
  %code = load i32, ptr %p3
  ret i32 %code
}

define internal ptr @on_thread(ptr %frame) {
  %state = load ptr, ptr %frame
  %p1 = getelementptr %call, ptr %frame, i32 0, i32 1
  %tensors = load ptr, ptr %p1
  %code = call i32 @locked(ptr %state, ptr %tensors)
  %p3 = getelementptr %call, ptr %frame, i32 0, i32 3
  store i32 %code, ptr %p3
  ret ptr null
}

; A call takes the first context that nobody has; where all are taken, calls wait for one after the other. Functions
; with open dims have the first context only, so that a table is not in use when it is dropped.
define internal i32 @locked(ptr %state, ptr %tensors) {
entry:
  %tables_at = getelementptr %state, ptr %state, i32 0, i32 1
  %tables = load ptr, ptr %tables_at
  %open = icmp eq ptr %tables, null
  br i1 %open, label %wait_first, label %try
wait_first:
  %first_lock = call i32 @pthread_mutex_lock(ptr inttoptr (i64 MUTEXES to ptr))
  %made = call ptr @find(ptr %state, ptr %tensors)
  br label %found
try:
  %c = phi i64 [ 0, %entry ], [ %c1, %taken ]
  %more = icmp ult i64 %c, CONTEXTS
  br i1 %more, label %attempt, label %wait
attempt:
  %mutex = getelementptr [128 x i8], ptr inttoptr (i64 MUTEXES to ptr), i64 %c
  %busy = call i32 @pthread_mutex_trylock(ptr %mutex)
  %free = icmp eq i32 %busy, 0
  br i1 %free, label %fixed, label %taken
taken:
  %c1 = add i64 %c, 1
  br label %try
wait:
  %turn = atomicrmw add ptr inttoptr (i64 TURN to ptr), i64 1 monotonic
  %next = urem i64 %turn, CONTEXTS
  %next_mutex = getelementptr [128 x i8], ptr inttoptr (i64 MUTEXES to ptr), i64 %next
  %next_lock = call i32 @pthread_mutex_lock(ptr %next_mutex)
  br label %fixed
fixed:
  %context = phi i64 [ %c, %attempt ], [ %next, %wait ]
  %table_at = getelementptr ptr, ptr %tables, i64 %context
  %table_of_context = load ptr, ptr %table_at
  br label %found
found:
  %own = phi i64 [ 0, %wait_first ], [ %context, %fixed ]
  %table = phi ptr [ %made, %wait_first ], [ %table_of_context, %fixed ]
  %none = icmp eq ptr %table, null
  br i1 %none, label %end, label %run
run:
  %code = call i32 @walk(ptr %table, ptr %tensors)
  br label %end
end:
  %result = phi i32 [ NO_TABLE, %found ], [ %code, %run ]
  %own_mutex = getelementptr [128 x i8], ptr inttoptr (i64 MUTEXES to ptr), i64 %own
  %unlock = call i32 @pthread_mutex_unlock(ptr %own_mutex)
  ret i32 %result
}

; The table of the first entry whose sizes are those of the tensors; a new one if there is none.
define internal ptr @find(ptr %state, ptr %tensors) {
entry:
  %naxes_at = getelementptr %state, ptr %state, i32 0, i32 2
  %naxes = load i64, ptr %naxes_at
  %axes_at = getelementptr %state, ptr %state, i32 0, i32 3
  %axes = load ptr, ptr %axes_at
  %nentries_at = getelementptr %state, ptr %state, i32 0, i32 4
  %nentries = load i64, ptr %nentries_at
  %entries_at = getelementptr %state, ptr %state, i32 0, i32 5
  %entries = load ptr, ptr %entries_at
  br label %next
next:
  %e = phi i64 [ 0, %entry ], [ %e1, %other ]
  %left = icmp ult i64 %e, %nentries
  br i1 %left, label %look, label %missing
look:
  %sizes_at = getelementptr %entry, ptr %entries, i64 %e, i32 0
  %sizes = load ptr, ptr %sizes_at
  br label %compare
compare:
  %k = phi i64 [ 0, %look ], [ %k1, %same ]
  %more = icmp ult i64 %k, %naxes
  br i1 %more, label %size, label %hit
size:
  %tensor_number_at = getelementptr %axis, ptr %axes, i64 %k, i32 0
  %tensor_number = load i64, ptr %tensor_number_at
  %axis_at = getelementptr %axis, ptr %axes, i64 %k, i32 1
  %axis = load i64, ptr %axis_at
  %tensor_at = getelementptr ptr, ptr %tensors, i64 %tensor_number
  %tensor = load ptr, ptr %tensor_at
  %shape_at = getelementptr %tensor, ptr %tensor, i32 0, i32 7
  %shape = load ptr, ptr %shape_at
  %dim_at = getelementptr i64, ptr %shape, i64 %axis
  %dim = load i64, ptr %dim_at
  %known_at = getelementptr i64, ptr %sizes, i64 %k
  %known = load i64, ptr %known_at
  %equal = icmp eq i64 %dim, %known
  br i1 %equal, label %same, label %other
same:
  %k1 = add i64 %k, 1
  br label %compare
other:
  %e1 = add i64 %e, 1
  br label %next
hit:
  %table_at = getelementptr %entry, ptr %entries, i64 %e, i32 1
  %table = load ptr, ptr %table_at
  ret ptr %table
missing:
  %miss_at = getelementptr %state, ptr %state, i32 0, i32 6
  %miss = load ptr, ptr %miss_at
  %made = call ptr %miss(ptr %tensors)
  ret ptr %made
}

; Point the memories of the boundary to the caller's tensors, then execute the primitives in turn.
define internal i32 @walk(ptr %table, ptr %tensors) {
begin:
  %before = call i32 inttoptr (i64 GET_THREADS to ptr)()
  call void inttoptr (i64 SET_THREADS to ptr)(i32 THREADS)
  %stream = load ptr, ptr %table
  %nbound_at = getelementptr %table, ptr %table, i32 0, i32 1
  %nbound = load i64, ptr %nbound_at
  %bounds_at = getelementptr %table, ptr %table, i32 0, i32 2
  %bounds = load ptr, ptr %bounds_at
  %nsteps_at = getelementptr %table, ptr %table, i32 0, i32 3
  %nsteps = load i64, ptr %nsteps_at
  %steps_at = getelementptr %table, ptr %table, i32 0, i32 4
  %steps = load ptr, ptr %steps_at
  br label %bind
bind:
  %i = phi i64 [ 0, %begin ], [ %i1, %point ]
  %more = icmp ult i64 %i, %nbound
  br i1 %more, label %point, label %run
point:
  %index_at = getelementptr %bound, ptr %bounds, i64 %i, i32 0
  %index = load i64, ptr %index_at
  %inner_at = getelementptr %bound, ptr %bounds, i64 %i, i32 1
  %inner = load i64, ptr %inner_at
  %memory_at = getelementptr %bound, ptr %bounds, i64 %i, i32 2
  %memory = load ptr, ptr %memory_at
  %tensor_at = getelementptr ptr, ptr %tensors, i64 %index
  %tensor = load ptr, ptr %tensor_at
  %data = load ptr, ptr %tensor
  %offset_at = getelementptr %tensor, ptr %tensor, i32 0, i32 9
  %outer = load i64, ptr %offset_at
  %offset = add i64 %outer, %inner
  %first = getelementptr i8, ptr %data, i64 %offset
  %set = call i32 inttoptr (i64 SET_HANDLE to ptr)(ptr %memory, ptr %first)
  %i1 = add i64 %i, 1
  br label %bind
run:
  %k = phi i64 [ 0, %bind ], [ %k1, %next ]
  %left = icmp ult i64 %k, %nsteps
  br i1 %left, label %execute, label %wait
execute:
  %primitive_at = getelementptr %step, ptr %steps, i64 %k, i32 0
  %primitive = load ptr, ptr %primitive_at
  %nargs_at = getelementptr %step, ptr %steps, i64 %k, i32 1
  %nargs64 = load i64, ptr %nargs_at
  %nargs = trunc i64 %nargs64 to i32
  %args_at = getelementptr %step, ptr %steps, i64 %k, i32 2
  %args = load ptr, ptr %args_at
  %status = call i32 inttoptr (i64 EXECUTE to ptr)(ptr %primitive, ptr %stream, i32 %nargs, ptr %args)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %next, label %end
next:
  %k1 = add i64 %k, 1
  br label %run
wait:
  %waited = call i32 inttoptr (i64 WAIT to ptr)(ptr %stream)
  br label %end
end:
  %result = phi i32 [ %status, %execute ], [ %waited, %wait ]
  call void inttoptr (i64 SET_THREADS to ptr)(i32 %before)
  ret i32 %result
}
