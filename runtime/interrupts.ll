; Signals while compiled code runs: Python's handlers run only when its main thread runs Python. Loops of a model that may
; go on for ever ask here once for each iteration. Every so often that lets the handlers run, with Python's lock; where one
; raises an exception, as that of Ctrl-C does, the exception is kept and the model returns at once.
;
; Few iterations look at the clock: one of 2^n, where n grows while the clock shows that iterations are short. The counters
; are shared by all threads; what a race loses is an iteration more or less until the next look.

@left = internal global i32 0, align 64
@period = internal global i32 1
@looked = internal global i64 0
@checked = internal global i64 0
@error = global [3 x ptr] zeroinitializer, align 8

declare i32 @llvm.umin.i32(i32, i32)

; Whether the call is to end.
define i1 @mirlo_poll() {
entry:
  %before = load atomic i32, ptr @left monotonic, align 4
  %after = sub i32 %before, 1
  store atomic i32 %after, ptr @left monotonic, align 4
  %due = icmp slt i32 %after, 0
  br i1 %due, label %look, label %no
look:
  %now = TICKS
  %last = load atomic i64, ptr @looked monotonic, align 8
  store atomic i64 %now, ptr @looked monotonic, align 8
  %passed = sub i64 %now, %last
  %short = icmp ult i64 %passed, SHORT_TICKS
  %old = load atomic i32, ptr @period monotonic, align 4
  %doubled = shl i32 %old, 1
  %capped = call i32 @llvm.umin.i32(i32 %doubled, i32 MOST_ITERATIONS)
  %period = select i1 %short, i32 %capped, i32 1
  store atomic i32 %period, ptr @period monotonic, align 4
  store atomic i32 %period, ptr @left monotonic, align 4
  %then = load atomic i64, ptr @checked monotonic, align 8
  %since = sub i64 %now, %then
  %long = icmp uge i64 %since, CHECK_TICKS
  br i1 %long, label %check, label %no
check:
  store atomic i64 %now, ptr @checked monotonic, align 8
  %lock = call i32 inttoptr (i64 TAKE_LOCK to ptr)()
  %raised = call i32 inttoptr (i64 CHECK_SIGNALS to ptr)()
  %failed = icmp ne i32 %raised, 0
  br i1 %failed, label %keep, label %release
keep:
  %second = getelementptr ptr, ptr @error, i64 1
  %third = getelementptr ptr, ptr @error, i64 2
  call void inttoptr (i64 FETCH_ERROR to ptr)(ptr @error, ptr %second, ptr %third)
  br label %release
release:
  call void inttoptr (i64 GIVE_LOCK to ptr)(i32 %lock)
  ret i1 %failed
no:
  ret i1 false
}
