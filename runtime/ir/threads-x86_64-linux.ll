; By `make runtime-ir` from runtime/c/threads.c. Sources 6baa45dfb5d6da7478cf06f625e4032f, text 1b2a9f62785e0bfd94dd0bbc01fc4514.
%struct.mutex_storage = type { [256 x i8] }

@caller_core = internal unnamed_addr global i32 -1, align 4
@is_foreign = internal unnamed_addr global i1 false, align 4
@cores = internal unnamed_addr global [1024 x i32] zeroinitializer, align 16
@core_count = internal unnamed_addr global i32 0, align 4
@threads_of_pool = internal unnamed_addr global [1024 x i64] zeroinitializer, align 16
@masks = internal global [1024 x [128 x i8]] zeroinitializer, align 64
@workers = internal unnamed_addr global i32 0, align 64
@team_number = internal unnamed_addr global ptr null, align 8
@team_region = internal unnamed_addr global ptr null, align 8
@alone_until = internal unnamed_addr global i64 0, align 8
@state = internal global i64 0, align 64
@sleepers = internal global i32 0, align 64
@busy = internal global i32 0, align 64
@limit = internal unnamed_addr global i32 0, align 4
@done = internal global i32 0, align 64
@total = internal unnamed_addr global i32 0, align 64
@alone_ticks = internal unnamed_addr global i64 0, align 8
@mutex = internal global %struct.mutex_storage zeroinitializer, align 64
@condition = internal global %struct.mutex_storage zeroinitializer, align 64
@function = internal unnamed_addr global ptr null, align 8
@arguments = internal unnamed_addr global ptr null, align 8

define void @mirlo_pool_cores(ptr noundef readonly captures(none) %0, i32 noundef %1) local_unnamed_addr {
  store i32 -1, ptr @caller_core, align 4
  store i1 false, ptr @is_foreign, align 4
  %3 = tail call i32 @llvm.smin.i32(i32 %1, i32 1024)
  %4 = icmp sgt i32 %1, 0
  br i1 %4, label %5, label %14

5:
  %6 = zext nneg i32 %3 to i64
  br label %7

7:
  %8 = phi i64 [ 0, %5 ], [ %12, %7 ]
  %9 = getelementptr inbounds nuw i32, ptr %0, i64 %8
  %10 = load i32, ptr %9, align 4
  %11 = getelementptr inbounds nuw i32, ptr @cores, i64 %8
  store i32 %10, ptr %11, align 4
  %12 = add nuw nsw i64 %8, 1
  %13 = icmp eq i64 %12, %6
  br i1 %13, label %14, label %7

14:
  %15 = phi i32 [ 0, %2 ], [ %3, %7 ]
  store i32 %15, ptr @core_count, align 4
  ret void
}

declare void @llvm.lifetime.start.p0(ptr captures(none))

declare void @llvm.lifetime.end.p0(ptr captures(none))

define void @mirlo_pool_started(i32 noundef %0, i64 noundef %1) local_unnamed_addr {
  %3 = icmp sgt i32 %0, 1023
  br i1 %3, label %11, label %4

4:
  %5 = sext i32 %0 to i64
  %6 = getelementptr inbounds i64, ptr @threads_of_pool, i64 %5
  store i64 %1, ptr %6, align 8
  store i32 -1, ptr @caller_core, align 4
  %7 = getelementptr inbounds [128 x i8], ptr @masks, i64 %5
  %8 = tail call i32 @pthread_getaffinity_np(i64 noundef %1, i64 noundef 128, ptr noundef nonnull %7)
  %9 = icmp eq i32 %8, 0
  br i1 %9, label %11, label %10

10:
  store i1 true, ptr @is_foreign, align 4
  br label %11

11:
  ret void
}

declare i32 @pthread_getaffinity_np(i64 noundef, i64 noundef, ptr noundef) local_unnamed_addr

define void @mirlo_pool_place(i32 noundef %0) local_unnamed_addr {
  %2 = alloca [128 x i8], align 16
  %3 = alloca [128 x i8], align 16
  %4 = tail call i32 @sched_getcpu()
  %5 = load i32, ptr @core_count, align 4
  %6 = add nsw i32 %5, -1
  %7 = load i32, ptr @caller_core, align 4
  %8 = icmp eq i32 %4, %7
  %9 = load i1, ptr @is_foreign, align 4
  %10 = select i1 %8, i1 true, i1 %9
  br i1 %10, label %99, label %11

11:
  %12 = icmp sle i32 %5, %0
  %13 = icmp sgt i32 %0, 1024
  %14 = or i1 %13, %12
  br i1 %14, label %99, label %15

15:
  %16 = icmp sgt i32 %5, 0
  br i1 %16, label %17, label %29

17:
  %18 = zext nneg i32 %5 to i64
  br label %19

19:
  %20 = phi i64 [ 0, %17 ], [ %25, %24 ]
  %21 = getelementptr inbounds nuw i32, ptr @cores, i64 %20
  %22 = load i32, ptr %21, align 4
  %23 = icmp eq i32 %22, %4
  br i1 %23, label %27, label %24

24:
  %25 = add nuw nsw i64 %20, 1
  %26 = icmp eq i64 %25, %18
  br i1 %26, label %99, label %19

27:
  %28 = trunc nuw nsw i64 %20 to i32
  br label %29

29:
  %30 = phi i32 [ 0, %15 ], [ %28, %27 ]
  %31 = icmp eq i32 %30, %5
  br i1 %31, label %99, label %32

32:
  store i32 %4, ptr @caller_core, align 4
  %33 = icmp sgt i32 %0, 0
  br i1 %33, label %34, label %99

34:
  %35 = add nuw nsw i32 %30, 1
  %36 = sext i32 %6 to i64
  %37 = zext nneg i32 %0 to i64
  br label %38

38:
  %39 = phi i64 [ 0, %34 ], [ %97, %96 ]
  call void @llvm.lifetime.start.p0(ptr nonnull %3)
  br label %45

40:
  %41 = icmp slt i64 %39, %36
  br i1 %41, label %42, label %67

42:
  %43 = load i32, ptr @core_count, align 4
  %44 = trunc nuw nsw i64 %39 to i32
  br label %50

45:
  %46 = phi i64 [ 0, %38 ], [ %48, %45 ]
  %47 = getelementptr inbounds nuw i8, ptr %3, i64 %46
  store i8 0, ptr %47, align 1
  %48 = add nuw nsw i64 %46, 1
  %49 = icmp eq i64 %48, 128
  br i1 %49, label %40, label %45

50:
  %51 = phi i32 [ %44, %42 ], [ %65, %50 ]
  %52 = add nsw i32 %35, %51
  %53 = srem i32 %52, %43
  %54 = sext i32 %53 to i64
  %55 = getelementptr inbounds i32, ptr @cores, i64 %54
  %56 = load i32, ptr %55, align 4
  %57 = ashr i32 %56, 3
  %58 = sext i32 %57 to i64
  %59 = getelementptr inbounds i8, ptr %3, i64 %58
  %60 = load i8, ptr %59, align 1
  %61 = and i32 %56, 7
  %62 = shl nuw nsw i32 1, %61
  %63 = trunc nuw i32 %62 to i8
  %64 = or i8 %60, %63
  store i8 %64, ptr %59, align 1
  %65 = add nuw nsw i32 %51, %0
  %66 = icmp slt i32 %65, %6
  br i1 %66, label %50, label %67

67:
  call void @llvm.lifetime.start.p0(ptr nonnull %2)
  %68 = getelementptr inbounds nuw i64, ptr @threads_of_pool, i64 %39
  %69 = load i64, ptr %68, align 8
  %70 = call i32 @pthread_getaffinity_np(i64 noundef %69, i64 noundef 128, ptr noundef nonnull %2)
  %71 = icmp eq i32 %70, 0
  br i1 %71, label %72, label %95

72:
  %73 = getelementptr inbounds nuw [128 x i8], ptr @masks, i64 %39
  br label %77

74:
  %75 = add nuw nsw i64 %78, 1
  %76 = icmp eq i64 %75, 128
  br i1 %76, label %84, label %77

77:
  %78 = phi i64 [ 0, %72 ], [ %75, %74 ]
  %79 = getelementptr inbounds nuw i8, ptr %2, i64 %78
  %80 = load i8, ptr %79, align 1
  %81 = getelementptr inbounds nuw i8, ptr %73, i64 %78
  %82 = load i8, ptr %81, align 1
  %83 = icmp eq i8 %80, %82
  br i1 %83, label %74, label %95

84:
  %85 = load i64, ptr %68, align 8
  %86 = call i32 @pthread_setaffinity_np(i64 noundef %85, i64 noundef 128, ptr noundef nonnull %3)
  %87 = icmp eq i32 %86, 0
  br i1 %87, label %88, label %95

88:
  %89 = phi i64 [ %93, %88 ], [ 0, %84 ]
  %90 = getelementptr inbounds nuw i8, ptr %3, i64 %89
  %91 = load i8, ptr %90, align 1
  %92 = getelementptr inbounds nuw i8, ptr %73, i64 %89
  store i8 %91, ptr %92, align 1
  %93 = add nuw nsw i64 %89, 1
  %94 = icmp eq i64 %93, 128
  br i1 %94, label %96, label %88

95:
  call void @llvm.lifetime.end.p0(ptr nonnull %2)
  store i1 true, ptr @is_foreign, align 4
  call void @llvm.lifetime.end.p0(ptr nonnull %3)
  br label %99

96:
  call void @llvm.lifetime.end.p0(ptr nonnull %2)
  call void @llvm.lifetime.end.p0(ptr nonnull %3)
  %97 = add nuw nsw i64 %39, 1
  %98 = icmp eq i64 %97, %37
  br i1 %98, label %99, label %38

99:
  ret void
}

declare i32 @sched_getcpu() local_unnamed_addr

define i32 @mirlo_pool_start(i32 noundef %0) local_unnamed_addr {
  %2 = alloca i64, align 8
  %3 = load i32, ptr @workers, align 64
  call void @llvm.lifetime.start.p0(ptr nonnull %2)
  store i64 0, ptr %2, align 8
  %4 = icmp slt i32 %3, %0
  br i1 %4, label %5, label %29

5:
  %6 = sext i32 %3 to i64
  br label %7

7:
  %8 = phi i64 [ %6, %5 ], [ %24, %23 ]
  %9 = inttoptr i64 %8 to ptr
  %10 = call i32 @pthread_create(ptr noundef nonnull %2, ptr noundef null, ptr noundef nonnull @worker, ptr noundef %9)
  %11 = icmp eq i32 %10, 0
  br i1 %11, label %12, label %27

12:
  %13 = load i64, ptr %2, align 8
  %14 = call i32 @pthread_detach(i64 noundef %13)
  %15 = icmp sgt i64 %8, 1023
  br i1 %15, label %23, label %16

16:
  %17 = load i64, ptr %2, align 8
  %18 = getelementptr inbounds i64, ptr @threads_of_pool, i64 %8
  store i64 %17, ptr %18, align 8
  store i32 -1, ptr @caller_core, align 4
  %19 = getelementptr inbounds [128 x i8], ptr @masks, i64 %8
  %20 = call i32 @pthread_getaffinity_np(i64 noundef %17, i64 noundef 128, ptr noundef nonnull %19)
  %21 = icmp eq i32 %20, 0
  br i1 %21, label %23, label %22

22:
  store i1 true, ptr @is_foreign, align 4
  br label %23

23:
  %24 = add nsw i64 %8, 1
  %25 = trunc i64 %24 to i32
  store atomic i32 %25, ptr @workers release, align 64
  %26 = icmp eq i32 %0, %25
  br i1 %26, label %29, label %7

27:
  %28 = trunc nsw i64 %8 to i32
  br label %29

29:
  %30 = phi i32 [ %3, %1 ], [ %28, %27 ], [ %0, %23 ]
  call void @llvm.lifetime.end.p0(ptr nonnull %2)
  ret i32 %30
}

define internal noalias noundef nonnull ptr @worker(ptr noundef %0) {
  %2 = ptrtoint ptr %0 to i64
  %3 = trunc i64 %2 to i32
  br label %4

4:
  %5 = phi i32 [ 0, %1 ], [ %29, %28 ]
  %6 = load atomic i64, ptr @state seq_cst, align 64
  %7 = trunc i64 %6 to i32
  %8 = and i32 %7, 1048575
  %9 = lshr i64 %6, 20
  %10 = trunc i64 %9 to i32
  %11 = and i32 %10, 1048575
  %12 = add nuw nsw i32 %11, %8
  %13 = load atomic i32, ptr @total monotonic, align 64
  %14 = icmp ult i32 %12, %13
  br i1 %14, label %15, label %53

15:
  %16 = load atomic i32, ptr @limit monotonic, align 4
  %17 = icmp sgt i32 %16, %3
  br i1 %17, label %18, label %53

18:
  %19 = load atomic i64, ptr @state acquire, align 64
  %20 = lshr i64 %19, 20
  %21 = trunc i64 %20 to i32
  %22 = and i32 %21, 1048575
  %23 = trunc i64 %19 to i32
  %24 = and i32 %23, 1048575
  %25 = add nuw nsw i32 %22, %24
  %26 = load atomic i32, ptr @total acquire, align 64
  %27 = icmp ult i32 %25, %26
  br i1 %27, label %30, label %28

28:
  %29 = phi i32 [ %54, %53 ], [ 0, %74 ], [ 0, %18 ], [ 0, %43 ]
  br label %4

30:
  %31 = phi i32 [ %47, %43 ], [ %22, %18 ]
  %32 = phi i64 [ %44, %43 ], [ %19, %18 ]
  %33 = add i64 %32, 1048576
  %34 = cmpxchg ptr @state, i64 %32, i64 %33 acq_rel monotonic, align 64
  %35 = extractvalue { i64, i1 } %34, 1
  br i1 %35, label %36, label %43

36:
  %37 = load atomic i32, ptr @total monotonic, align 64
  %38 = load ptr, ptr @function, align 8
  %39 = load ptr, ptr @arguments, align 8
  %40 = xor i32 %31, -1
  %41 = add i32 %37, %40
  tail call void %38(ptr noundef %39, i32 noundef %41, i32 noundef %37)
  %42 = atomicrmw add ptr @done, i32 1 acq_rel, align 64
  br label %43

43:
  %44 = load atomic i64, ptr @state acquire, align 64
  %45 = lshr i64 %44, 20
  %46 = trunc i64 %45 to i32
  %47 = and i32 %46, 1048575
  %48 = trunc i64 %44 to i32
  %49 = and i32 %48, 1048575
  %50 = add nuw nsw i32 %47, %49
  %51 = load atomic i32, ptr @total acquire, align 64
  %52 = icmp ult i32 %50, %51
  br i1 %52, label %30, label %28

53:
  tail call void @llvm.x86.sse2.pause()
  %54 = add nsw i32 %5, 1
  %55 = icmp sgt i32 %5, 3999
  br i1 %55, label %56, label %28

56:
  %57 = tail call i32 @pthread_mutex_lock(ptr noundef nonnull @mutex)
  %58 = atomicrmw add ptr @sleepers, i32 1 seq_cst, align 64
  br label %59

59:
  %60 = load atomic i64, ptr @state seq_cst, align 64
  %61 = trunc i64 %60 to i32
  %62 = and i32 %61, 1048575
  %63 = lshr i64 %60, 20
  %64 = trunc i64 %63 to i32
  %65 = and i32 %64, 1048575
  %66 = add nuw nsw i32 %65, %62
  %67 = load atomic i32, ptr @total monotonic, align 64
  %68 = icmp ult i32 %66, %67
  br i1 %68, label %69, label %72

69:
  %70 = load atomic i32, ptr @limit monotonic, align 4
  %71 = icmp sgt i32 %70, %3
  br i1 %71, label %74, label %72

72:
  %73 = tail call i32 @pthread_cond_wait(ptr noundef nonnull @condition, ptr noundef nonnull @mutex)
  br label %59

74:
  %75 = atomicrmw sub ptr @sleepers, i32 1 seq_cst, align 64
  %76 = tail call i32 @pthread_mutex_unlock(ptr noundef nonnull @mutex)
  br label %28
}

define void @mirlo_pool_team(ptr noundef %0, ptr noundef %1) local_unnamed_addr {
  store ptr %1, ptr @team_number, align 8
  %3 = ptrtoint ptr %0 to i64
  store atomic i64 %3, ptr @team_region release, align 8
  store atomic i64 0, ptr @alone_until monotonic, align 8
  ret void
}

define void @mirlo_pool_reset() local_unnamed_addr {
  store i64 0, ptr @state, align 64
  store i32 0, ptr @workers, align 64
  store i32 0, ptr @sleepers, align 64
  store i32 0, ptr @busy, align 64
  store i32 0, ptr @limit, align 4
  store i32 0, ptr @done, align 64
  store i32 0, ptr @total, align 64
  store i64 0, ptr @alone_ticks, align 8
  store i64 0, ptr @alone_until, align 8
  store ptr null, ptr @team_region, align 8
  %1 = tail call i32 @pthread_mutex_init(ptr noundef nonnull @mutex, ptr noundef null)
  %2 = tail call i32 @pthread_cond_init(ptr noundef nonnull @condition, ptr noundef null)
  ret void
}

define void @mirlo_parallel(ptr noundef %0, ptr noundef %1, i32 noundef %2, i32 noundef %3) local_unnamed_addr {
  %5 = alloca i32, align 4
  %6 = icmp ugt i32 %3, 1
  %7 = add i32 %2, -2
  %8 = icmp ult i32 %7, 1048573
  %9 = and i1 %8, %6
  br i1 %9, label %10, label %18

10:
  %11 = tail call i64 @llvm.readcyclecounter()
  %12 = load atomic i64, ptr @alone_until monotonic, align 8
  call void @llvm.lifetime.start.p0(ptr nonnull %5)
  %13 = add nsw i32 %3, -1
  store i32 %13, ptr %5, align 4
  %14 = icmp ult i64 %11, %12
  br i1 %14, label %21, label %15

15:
  %16 = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic, align 64
  %17 = extractvalue { i32, i1 } %16, 1
  br i1 %17, label %26, label %21

18:
  %19 = load atomic i64, ptr @alone_until monotonic, align 8
  call void @llvm.lifetime.start.p0(ptr nonnull %5)
  %20 = icmp sgt i32 %2, 0
  br i1 %20, label %21, label %104

21:
  br label %22

22:
  %23 = phi i32 [ %24, %22 ], [ 0, %21 ]
  tail call void %0(ptr noundef %1, i32 noundef %23, i32 noundef %2)
  %24 = add nuw nsw i32 %23, 1
  %25 = icmp eq i32 %24, %2
  br i1 %25, label %104, label %22

26:
  %27 = load i32, ptr %5, align 4
  %28 = load atomic i64, ptr @state monotonic, align 64
  %29 = and i64 %28, -1099511627776
  %30 = add i64 %29, 1099511627776
  %31 = load atomic i64, ptr @team_region acquire, align 8
  %32 = or disjoint i64 %30, 1099511627775
  store atomic i64 %32, ptr @state seq_cst, align 64
  store ptr %0, ptr @function, align 8
  store ptr %1, ptr @arguments, align 8
  store atomic i32 0, ptr @done monotonic, align 64
  %33 = icmp eq i64 %31, 0
  %34 = select i1 %33, i32 %27, i32 0
  store atomic i32 %34, ptr @limit monotonic, align 4
  store atomic i32 %2, ptr @total release, align 64
  store atomic i64 %30, ptr @state seq_cst, align 64
  br i1 %33, label %37, label %35

35:
  %36 = inttoptr i64 %31 to ptr
  call void %36(ptr noundef nonnull @member, ptr noundef nonnull %5, i32 noundef 0, i32 noundef 0)
  br label %76

37:
  %38 = load atomic i32, ptr @sleepers seq_cst, align 64
  %39 = icmp eq i32 %38, 0
  br i1 %39, label %45, label %40

40:
  %41 = load atomic i32, ptr @workers acquire, align 64
  tail call void @mirlo_pool_place(i32 noundef %41)
  %42 = tail call i32 @pthread_mutex_lock(ptr noundef nonnull @mutex)
  %43 = tail call i32 @pthread_cond_broadcast(ptr noundef nonnull @condition)
  %44 = tail call i32 @pthread_mutex_unlock(ptr noundef nonnull @mutex)
  br label %45

45:
  %46 = load atomic i64, ptr @state acquire, align 64
  %47 = lshr i64 %46, 20
  %48 = trunc i64 %47 to i32
  %49 = and i32 %48, 1048575
  %50 = trunc i64 %46 to i32
  %51 = and i32 %50, 1048575
  %52 = add nuw nsw i32 %49, %51
  %53 = load atomic i32, ptr @total acquire, align 64
  %54 = icmp ult i32 %52, %53
  br i1 %54, label %55, label %76

55:
  %56 = phi i32 [ %72, %66 ], [ %51, %45 ]
  %57 = phi i64 [ %67, %66 ], [ %46, %45 ]
  %58 = add i64 %57, 1
  %59 = cmpxchg ptr @state, i64 %57, i64 %58 acq_rel monotonic, align 64
  %60 = extractvalue { i64, i1 } %59, 1
  br i1 %60, label %61, label %66

61:
  %62 = load atomic i32, ptr @total monotonic, align 64
  %63 = load ptr, ptr @function, align 8
  %64 = load ptr, ptr @arguments, align 8
  tail call void %63(ptr noundef %64, i32 noundef %56, i32 noundef %62)
  %65 = atomicrmw add ptr @done, i32 1 acq_rel, align 64
  br label %66

66:
  %67 = load atomic i64, ptr @state acquire, align 64
  %68 = lshr i64 %67, 20
  %69 = trunc i64 %68 to i32
  %70 = and i32 %69, 1048575
  %71 = trunc i64 %67 to i32
  %72 = and i32 %71, 1048575
  %73 = add nuw nsw i32 %70, %72
  %74 = load atomic i32, ptr @total acquire, align 64
  %75 = icmp ult i32 %73, %74
  br i1 %75, label %55, label %76

76:
  %77 = call i64 @llvm.readcyclecounter()
  br label %78

78:
  %79 = phi i1 [ false, %87 ], [ true, %76 ]
  br label %80

80:
  %81 = phi i32 [ %85, %84 ], [ 0, %78 ]
  %82 = load atomic i32, ptr @done acquire, align 64
  %83 = icmp eq i32 %82, %2
  br i1 %83, label %89, label %84

84:
  call void @llvm.x86.sse2.pause()
  %85 = add nuw nsw i32 %81, 1
  %86 = icmp eq i32 %85, 4001
  br i1 %86, label %87, label %80

87:
  %88 = call i32 @sched_yield()
  br label %78

89:
  br i1 %79, label %103, label %90

90:
  %91 = call i64 @llvm.readcyclecounter()
  %92 = sub i64 %91, %77
  %93 = sub i64 %77, %11
  %94 = shl i64 %93, 2
  %95 = icmp ugt i64 %92, %94
  br i1 %95, label %96, label %103

96:
  %97 = load i64, ptr @alone_ticks, align 8
  %98 = add i64 %97, %12
  %99 = icmp ult i64 %91, %98
  %100 = select i1 %99, i64 4, i64 3
  %101 = shl i64 %92, %100
  store i64 %101, ptr @alone_ticks, align 8
  %102 = add i64 %101, %91
  store atomic i64 %102, ptr @alone_until monotonic, align 8
  br label %103

103:
  store atomic i32 0, ptr @busy release, align 64
  br label %104

104:
  call void @llvm.lifetime.end.p0(ptr nonnull %5)
  ret void
}

define internal void @member(ptr noundef readonly captures(none) %0) {
  %2 = load ptr, ptr @team_number, align 8
  %3 = tail call i32 %2()
  %4 = icmp eq i32 %3, 0
  br i1 %4, label %5, label %36

5:
  %6 = load atomic i64, ptr @state acquire, align 64
  %7 = lshr i64 %6, 20
  %8 = trunc i64 %7 to i32
  %9 = and i32 %8, 1048575
  %10 = trunc i64 %6 to i32
  %11 = and i32 %10, 1048575
  %12 = add nuw nsw i32 %9, %11
  %13 = load atomic i32, ptr @total acquire, align 64
  %14 = icmp ult i32 %12, %13
  br i1 %14, label %15, label %72

15:
  %16 = phi i32 [ %32, %26 ], [ %11, %5 ]
  %17 = phi i64 [ %27, %26 ], [ %6, %5 ]
  %18 = add i64 %17, 1
  %19 = cmpxchg ptr @state, i64 %17, i64 %18 acq_rel monotonic, align 64
  %20 = extractvalue { i64, i1 } %19, 1
  br i1 %20, label %21, label %26

21:
  %22 = load atomic i32, ptr @total monotonic, align 64
  %23 = load ptr, ptr @function, align 8
  %24 = load ptr, ptr @arguments, align 8
  tail call void %23(ptr noundef %24, i32 noundef %16, i32 noundef %22)
  %25 = atomicrmw add ptr @done, i32 1 acq_rel, align 64
  br label %26

26:
  %27 = load atomic i64, ptr @state acquire, align 64
  %28 = lshr i64 %27, 20
  %29 = trunc i64 %28 to i32
  %30 = and i32 %29, 1048575
  %31 = trunc i64 %27 to i32
  %32 = and i32 %31, 1048575
  %33 = add nuw nsw i32 %30, %32
  %34 = load atomic i32, ptr @total acquire, align 64
  %35 = icmp ult i32 %33, %34
  br i1 %35, label %15, label %72

36:
  %37 = load i32, ptr %0, align 4
  %38 = icmp ugt i32 %3, %37
  br i1 %38, label %72, label %39

39:
  %40 = load atomic i64, ptr @state acquire, align 64
  %41 = lshr i64 %40, 20
  %42 = trunc i64 %41 to i32
  %43 = and i32 %42, 1048575
  %44 = trunc i64 %40 to i32
  %45 = and i32 %44, 1048575
  %46 = add nuw nsw i32 %43, %45
  %47 = load atomic i32, ptr @total acquire, align 64
  %48 = icmp ult i32 %46, %47
  br i1 %48, label %49, label %72

49:
  %50 = phi i32 [ %66, %62 ], [ %43, %39 ]
  %51 = phi i64 [ %63, %62 ], [ %40, %39 ]
  %52 = add i64 %51, 1048576
  %53 = cmpxchg ptr @state, i64 %51, i64 %52 acq_rel monotonic, align 64
  %54 = extractvalue { i64, i1 } %53, 1
  br i1 %54, label %55, label %62

55:
  %56 = load atomic i32, ptr @total monotonic, align 64
  %57 = load ptr, ptr @function, align 8
  %58 = load ptr, ptr @arguments, align 8
  %59 = xor i32 %50, -1
  %60 = add i32 %56, %59
  tail call void %57(ptr noundef %58, i32 noundef %60, i32 noundef %56)
  %61 = atomicrmw add ptr @done, i32 1 acq_rel, align 64
  br label %62

62:
  %63 = load atomic i64, ptr @state acquire, align 64
  %64 = lshr i64 %63, 20
  %65 = trunc i64 %64 to i32
  %66 = and i32 %65, 1048575
  %67 = trunc i64 %63 to i32
  %68 = and i32 %67, 1048575
  %69 = add nuw nsw i32 %66, %68
  %70 = load atomic i32, ptr @total acquire, align 64
  %71 = icmp ult i32 %69, %70
  br i1 %71, label %49, label %72

72:
  ret void
}

declare i32 @pthread_setaffinity_np(i64 noundef, i64 noundef, ptr noundef) local_unnamed_addr

declare i32 @pthread_create(ptr noundef, ptr noundef, ptr noundef, ptr noundef) local_unnamed_addr

declare i32 @pthread_detach(i64 noundef) local_unnamed_addr

declare void @llvm.x86.sse2.pause()

declare i32 @pthread_cond_wait(ptr noundef, ptr noundef) local_unnamed_addr

declare i32 @pthread_mutex_init(ptr noundef, ptr noundef) local_unnamed_addr

declare i32 @pthread_cond_init(ptr noundef, ptr noundef) local_unnamed_addr

declare i64 @llvm.readcyclecounter()

declare i32 @pthread_mutex_lock(ptr noundef) local_unnamed_addr

declare i32 @pthread_cond_broadcast(ptr noundef) local_unnamed_addr

declare i32 @pthread_mutex_unlock(ptr noundef) local_unnamed_addr

declare i32 @sched_yield() local_unnamed_addr

declare i32 @llvm.smin.i32(i32, i32)
