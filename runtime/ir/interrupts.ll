; By `make runtime-ir` from runtime/c/interrupts.c. Sources 46d417b91e118c6d5aca9f0b516617b2, text bc4fc73e2a97804dee0c351a8d25b425.
@check_ticks = internal unnamed_addr global i64 0, align 8
@left = internal unnamed_addr global i32 0, align 64
@looked = internal unnamed_addr global i64 0, align 8
@period = internal unnamed_addr global i32 1, align 4
@checked = internal unnamed_addr global i64 0, align 8
@mirlo_poll_error = global [3 x ptr] zeroinitializer, align 16

define void @mirlo_poll_begin(i64 noundef %0) local_unnamed_addr {
  store i64 %0, ptr @check_ticks, align 8
  ret void
}

define noundef zeroext i1 @mirlo_poll() local_unnamed_addr {
  %1 = load atomic i32, ptr @left monotonic, align 64
  %2 = add nsw i32 %1, -1
  store atomic i32 %2, ptr @left monotonic, align 64
  %3 = icmp sgt i32 %1, 0
  br i1 %3, label %28, label %4

4:
  %5 = load i64, ptr @check_ticks, align 8
  %6 = icmp eq i64 %5, 0
  br i1 %6, label %9, label %7

7:
  %8 = tail call i64 @llvm.readcyclecounter()
  br label %9

9:
  %10 = phi i64 [ %8, %7 ], [ 0, %4 ]
  %11 = load atomic i64, ptr @looked monotonic, align 8
  %12 = sub i64 %10, %11
  store atomic i64 %10, ptr @looked monotonic, align 8
  %13 = load atomic i32, ptr @period monotonic, align 4
  %14 = shl nsw i32 %13, 1
  %15 = tail call i32 @llvm.smin.i32(i32 %14, i32 256)
  %16 = lshr i64 %5, 8
  %17 = icmp ult i64 %12, %16
  %18 = select i1 %17, i32 %15, i32 1
  store atomic i32 %18, ptr @period monotonic, align 4
  store atomic i32 %18, ptr @left monotonic, align 64
  %19 = load atomic i64, ptr @checked monotonic, align 8
  %20 = sub i64 %10, %19
  %21 = icmp ult i64 %20, %5
  br i1 %21, label %28, label %22

22:
  store atomic i64 %10, ptr @checked monotonic, align 8
  %23 = tail call i32 @PyGILState_Ensure()
  %24 = tail call i32 @PyErr_CheckSignals()
  %25 = icmp ne i32 %24, 0
  br i1 %25, label %26, label %27

26:
  tail call void @PyErr_Fetch(ptr noundef nonnull @mirlo_poll_error, ptr noundef nonnull getelementptr inbounds nuw (i8, ptr @mirlo_poll_error, i64 8), ptr noundef nonnull getelementptr inbounds nuw (i8, ptr @mirlo_poll_error, i64 16))
  br label %27

27:
  tail call void @PyGILState_Release(i32 noundef %23)
  br label %28

28:
  %29 = phi i1 [ %25, %27 ], [ false, %0 ], [ false, %9 ]
  ret i1 %29
}

declare i64 @llvm.readcyclecounter()

declare i32 @PyGILState_Ensure() local_unnamed_addr

declare i32 @PyErr_CheckSignals() local_unnamed_addr

declare void @PyErr_Fetch(ptr noundef, ptr noundef, ptr noundef) local_unnamed_addr

declare void @PyGILState_Release(i32 noundef) local_unnamed_addr

declare i32 @llvm.smin.i32(i32, i32)
