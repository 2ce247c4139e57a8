; By `make runtime-ir` from runtime/c/direct.c. Sources 96141fde775ef32024ed783c62671ee4, text d098403c5db112f815abb948a309f4fa.
@PyArray_API = internal unnamed_addr global ptr null, align 8
@array_type = internal unnamed_addr global ptr null, align 8

define range(i32 0, 2) i32 @mirlo_direct_begin(ptr noundef %0, ptr noundef readonly captures(none) %1, ptr noundef readonly captures(none) %2) local_unnamed_addr {
  store ptr %0, ptr @PyArray_API, align 8
  %4 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %5 = load ptr, ptr %4, align 8
  store ptr %5, ptr @array_type, align 8
  %6 = load ptr, ptr %0, align 8
  %7 = tail call i32 %6()
  %8 = icmp ult i32 %7, 50331648
  br i1 %8, label %9, label %56

9:
  %10 = getelementptr inbounds nuw i8, ptr %2, i64 32
  %11 = load ptr, ptr @array_type, align 8
  %12 = ptrtoint ptr %11 to i64
  %13 = load i64, ptr %10, align 8
  %14 = icmp eq i64 %13, %12
  br i1 %14, label %15, label %56

15:
  %16 = getelementptr inbounds nuw i8, ptr %1, i64 8
  %17 = load ptr, ptr %16, align 8
  %18 = icmp eq ptr %17, %11
  br i1 %18, label %19, label %56

19:
  %20 = getelementptr inbounds nuw i8, ptr %1, i64 16
  %21 = load ptr, ptr %20, align 8
  %22 = ptrtoint ptr %21 to i64
  %23 = getelementptr inbounds nuw i8, ptr %2, i64 40
  %24 = load i64, ptr %23, align 8
  %25 = icmp eq i64 %24, %22
  br i1 %25, label %26, label %56

26:
  %27 = getelementptr inbounds nuw i8, ptr %1, i64 56
  %28 = load ptr, ptr %27, align 8
  %29 = ptrtoint ptr %28 to i64
  %30 = getelementptr inbounds nuw i8, ptr %2, i64 48
  %31 = load i64, ptr %30, align 8
  %32 = icmp eq i64 %31, %29
  br i1 %32, label %33, label %56

33:
  %34 = getelementptr inbounds nuw i8, ptr %1, i64 24
  %35 = load i32, ptr %34, align 8
  %36 = sext i32 %35 to i64
  %37 = getelementptr inbounds nuw i8, ptr %2, i64 56
  %38 = load i64, ptr %37, align 8
  %39 = icmp eq i64 %38, %36
  br i1 %39, label %40, label %56

40:
  %41 = getelementptr inbounds nuw i8, ptr %1, i64 64
  %42 = load i32, ptr %41, align 8
  %43 = sext i32 %42 to i64
  %44 = getelementptr inbounds nuw i8, ptr %2, i64 72
  %45 = load i64, ptr %44, align 8
  %46 = icmp eq i64 %45, %43
  br i1 %46, label %47, label %56

47:
  %48 = getelementptr inbounds nuw i8, ptr %1, i64 32
  %49 = load ptr, ptr %48, align 8
  %50 = getelementptr inbounds nuw i8, ptr %49, i64 8
  %51 = load i64, ptr %50, align 8
  %52 = getelementptr inbounds nuw i8, ptr %2, i64 64
  %53 = load i64, ptr %52, align 8
  %54 = icmp eq i64 %51, %53
  %55 = zext i1 %54 to i32
  br label %56

56:
  %57 = phi i32 [ 0, %40 ], [ 0, %33 ], [ 0, %26 ], [ 0, %19 ], [ 0, %15 ], [ 0, %9 ], [ 0, %3 ], [ %55, %47 ]
  ret i32 %57
}

declare void @llvm.lifetime.start.p0(ptr captures(none))

declare void @llvm.lifetime.end.p0(ptr captures(none))

define void @mirlo_direct_release(ptr noundef %0) local_unnamed_addr {
  %2 = icmp eq ptr %0, null
  br i1 %2, label %7, label %3

3:
  %4 = phi ptr [ %5, %3 ], [ %0, %1 ]
  %5 = load ptr, ptr %4, align 8
  tail call void @PyMem_RawFree(ptr noundef nonnull %4)
  %6 = icmp eq ptr %5, null
  br i1 %6, label %7, label %3

7:
  ret void
}

declare void @PyMem_RawFree(ptr noundef) local_unnamed_addr

define ptr @mirlo_direct_call(ptr noundef readonly captures(none) %0, ptr noundef readonly captures(none) %1, i64 noundef %2) local_unnamed_addr {
  %4 = getelementptr inbounds nuw i8, ptr %0, i64 32
  %5 = getelementptr inbounds nuw i8, ptr %0, i64 48
  %6 = load i64, ptr %5, align 8
  %7 = getelementptr inbounds nuw i8, ptr %0, i64 56
  %8 = load i64, ptr %7, align 8
  %9 = add i64 %8, 2
  %10 = getelementptr inbounds nuw i8, ptr %0, i64 96
  %11 = add nsw i64 %6, 2
  %12 = icmp eq i64 %2, %11
  br i1 %12, label %15, label %13

13:
  %14 = tail call ptr @PyBool_FromLong(i64 noundef 0)
  br label %272

15:
  %16 = add nsw i64 %8, %6
  %17 = shl i64 %16, 3
  %18 = add i64 %17, 8
  %19 = alloca i8, i64 %18, align 16
  %20 = getelementptr inbounds nuw i8, ptr %0, i64 64
  %21 = load i64, ptr %20, align 8
  %22 = add nsw i64 %21, %9
  %23 = shl i64 %22, 3
  %24 = alloca i8, i64 %23, align 16
  %25 = getelementptr inbounds i64, ptr %24, i64 %9
  %26 = icmp eq i64 %21, 0
  %27 = select i1 %26, ptr null, ptr %25
  %28 = getelementptr inbounds ptr, ptr %19, i64 %16
  store ptr %27, ptr %28, align 8
  %29 = icmp slt i64 %8, -1
  br i1 %29, label %38, label %30

30:
  %31 = call i64 @llvm.smax.i64(i64 %9, i64 1)
  br label %32

32:
  %33 = phi i64 [ %36, %32 ], [ 1, %30 ]
  %34 = sub nsw i64 0, %33
  %35 = getelementptr inbounds i64, ptr %25, i64 %34
  store i64 0, ptr %35, align 8
  %36 = add nuw i64 %33, 1
  %37 = icmp eq i64 %33, %31
  br i1 %37, label %38, label %32

38:
  %39 = icmp sgt i64 %21, 0
  br i1 %39, label %40, label %47

40:
  %41 = phi i64 [ %45, %40 ], [ 0, %38 ]
  %42 = icmp samesign ugt i64 %41, 1
  %43 = sext i1 %42 to i64
  %44 = getelementptr inbounds nuw i64, ptr %25, i64 %41
  store i64 %43, ptr %44, align 8
  %45 = add nuw nsw i64 %41, 1
  %46 = icmp eq i64 %45, %21
  br i1 %46, label %47, label %40

47:
  %48 = getelementptr inbounds nuw i8, ptr %0, i64 80
  %49 = load i64, ptr %48, align 8
  %50 = icmp eq i64 %49, 0
  br i1 %50, label %54, label %51

51:
  %52 = getelementptr i64, ptr %25, i64 %21
  %53 = getelementptr i8, ptr %52, i64 -8
  store i64 ptrtoint (ptr @allocate to i64), ptr %53, align 8
  br label %54

54:
  %55 = icmp sgt i64 %6, 0
  br i1 %55, label %56, label %121

56:
  %57 = load ptr, ptr @array_type, align 8
  br label %58

58:
  %59 = phi ptr [ %10, %56 ], [ %119, %114 ]
  %60 = phi i64 [ 0, %56 ], [ %118, %114 ]
  %61 = getelementptr inbounds nuw ptr, ptr %1, i64 %60
  %62 = load ptr, ptr %61, align 8
  %63 = getelementptr inbounds nuw i8, ptr %62, i64 8
  %64 = load ptr, ptr %63, align 8
  %65 = icmp eq ptr %64, %57
  br i1 %65, label %66, label %112

66:
  %67 = getelementptr inbounds nuw i8, ptr %62, i64 56
  %68 = load ptr, ptr %67, align 8
  %69 = load ptr, ptr %59, align 8
  %70 = icmp eq ptr %68, %69
  br i1 %70, label %71, label %112

71:
  %72 = getelementptr inbounds nuw i8, ptr %62, i64 24
  %73 = load i32, ptr %72, align 8
  %74 = sext i32 %73 to i64
  %75 = getelementptr inbounds nuw i8, ptr %59, i64 24
  %76 = load i64, ptr %75, align 8
  %77 = icmp eq i64 %76, %74
  br i1 %77, label %78, label %112

78:
  %79 = getelementptr inbounds nuw i8, ptr %62, i64 64
  %80 = load i32, ptr %79, align 8
  %81 = and i32 %80, 257
  %82 = icmp eq i32 %81, 257
  br i1 %82, label %83, label %112

83:
  %84 = getelementptr inbounds nuw i8, ptr %59, i64 32
  %85 = getelementptr inbounds nuw i8, ptr %62, i64 32
  %86 = load ptr, ptr %85, align 8
  %87 = icmp sgt i32 %73, 0
  br i1 %87, label %88, label %114

88:
  %89 = phi i64 [ %108, %107 ], [ 0, %83 ]
  %90 = getelementptr inbounds nuw i64, ptr %84, i64 %89
  %91 = load i64, ptr %90, align 8
  %92 = getelementptr inbounds nuw i64, ptr %86, i64 %89
  %93 = load i64, ptr %92, align 8
  %94 = icmp slt i64 %91, 0
  br i1 %94, label %95, label %105

95:
  %96 = sub nsw i64 0, %91
  %97 = getelementptr inbounds nuw i64, ptr %25, i64 %96
  %98 = load i64, ptr %97, align 8
  %99 = icmp eq i64 %98, %93
  %100 = icmp eq i64 %98, -1
  %101 = or i1 %99, %100
  %102 = icmp sgt i64 %93, -1
  %103 = and i1 %102, %101
  br i1 %103, label %104, label %110

104:
  store i64 %93, ptr %97, align 8
  br label %107

105:
  %106 = icmp eq i64 %91, %93
  br i1 %106, label %107, label %110

107:
  %108 = add nuw nsw i64 %89, 1
  %109 = icmp eq i64 %108, %74
  br i1 %109, label %114, label %88

110:
  %111 = icmp eq i64 %89, %74
  br i1 %111, label %114, label %112

112:
  %113 = call ptr @PyBool_FromLong(i64 noundef 0)
  br label %272

114:
  %115 = getelementptr inbounds nuw i8, ptr %62, i64 16
  %116 = load ptr, ptr %115, align 8
  %117 = getelementptr inbounds nuw ptr, ptr %19, i64 %60
  store ptr %116, ptr %117, align 8
  %118 = add nuw nsw i64 %60, 1
  %119 = getelementptr inbounds i64, ptr %84, i64 %74
  %120 = icmp eq i64 %118, %6
  br i1 %120, label %121, label %58

121:
  %122 = phi ptr [ %10, %54 ], [ %119, %114 ]
  %123 = getelementptr inbounds ptr, ptr %1, i64 %6
  %124 = load ptr, ptr %123, align 8
  %125 = call ptr @PyLong_AsVoidPtr(ptr noundef %124)
  %126 = getelementptr inbounds nuw i8, ptr %0, i64 72
  %127 = load i64, ptr %126, align 8
  %128 = icmp eq i64 %127, 0
  br i1 %128, label %149, label %129

129:
  %130 = load ptr, ptr %4, align 8
  call void %130(ptr noundef null, ptr noundef null, ptr noundef nonnull %25, ptr noundef null)
  %131 = load i64, ptr %25, align 8
  %132 = icmp eq i64 %131, 0
  br i1 %132, label %135, label %133

133:
  %134 = call ptr @PyBool_FromLong(i64 noundef 0)
  br label %272

135:
  %136 = load i64, ptr %126, align 8
  %137 = getelementptr inbounds i64, ptr %25, i64 %136
  %138 = load i64, ptr %137, align 8
  %139 = getelementptr i8, ptr %123, i64 8
  %140 = load ptr, ptr %139, align 8
  %141 = call ptr @PyLong_AsVoidPtr(ptr noundef %140)
  %142 = ptrtoint ptr %141 to i64
  %143 = icmp sgt i64 %138, %142
  br i1 %143, label %144, label %149

144:
  %145 = load i64, ptr %126, align 8
  %146 = getelementptr inbounds i64, ptr %25, i64 %145
  %147 = load i64, ptr %146, align 8
  %148 = call ptr @PyLong_FromLongLong(i64 noundef %147)
  br label %272

149:
  %150 = call ptr @PyTuple_New(i64 noundef %8)
  %151 = icmp eq ptr %150, null
  br i1 %151, label %272, label %152

152:
  %153 = icmp sgt i64 %8, 0
  br i1 %153, label %154, label %177

154:
  %155 = getelementptr ptr, ptr %19, i64 %6
  br label %156

156:
  %157 = phi ptr [ %122, %154 ], [ %175, %170 ]
  %158 = phi i64 [ 0, %154 ], [ %171, %170 ]
  %159 = getelementptr ptr, ptr %155, i64 %158
  store ptr null, ptr %159, align 8
  %160 = getelementptr inbounds nuw i8, ptr %157, i64 16
  %161 = load i64, ptr %160, align 8
  %162 = icmp eq i64 %161, 0
  br i1 %162, label %163, label %170

163:
  %164 = call fastcc ptr @new_output(ptr noundef nonnull %157, ptr noundef %25, ptr noundef null)
  %165 = icmp eq ptr %164, null
  br i1 %165, label %232, label %166

166:
  %167 = call i32 @PyTuple_SetItem(ptr noundef nonnull %150, i64 noundef %158, ptr noundef nonnull %164)
  %168 = getelementptr inbounds nuw i8, ptr %164, i64 16
  %169 = load ptr, ptr %168, align 8
  store ptr %169, ptr %159, align 8
  br label %170

170:
  %171 = add nuw nsw i64 %158, 1
  %172 = getelementptr inbounds nuw i8, ptr %157, i64 32
  %173 = getelementptr inbounds nuw i8, ptr %157, i64 24
  %174 = load i64, ptr %173, align 8
  %175 = getelementptr inbounds i64, ptr %172, i64 %174
  %176 = icmp eq i64 %171, %8
  br i1 %176, label %177, label %156

177:
  %178 = load i64, ptr %48, align 8
  %179 = icmp eq i64 %178, 0
  br i1 %179, label %185, label %180

180:
  %181 = getelementptr inbounds nuw i8, ptr %0, i64 88
  %182 = load ptr, ptr %181, align 8
  %183 = load ptr, ptr %182, align 8
  %184 = getelementptr inbounds i8, ptr %25, i64 -16
  store ptr %183, ptr %184, align 8
  store ptr null, ptr %182, align 8
  br label %185

185:
  %186 = call ptr @PyEval_SaveThread()
  %187 = load ptr, ptr %4, align 8
  %188 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %189 = load ptr, ptr %188, align 8
  call void %187(ptr noundef nonnull %19, ptr noundef %189, ptr noundef %125, ptr noundef null)
  call void @PyEval_RestoreThread(ptr noundef %186)
  %190 = load i64, ptr %20, align 8
  %191 = icmp eq i64 %190, 0
  br i1 %191, label %195, label %192

192:
  %193 = load i64, ptr %25, align 8
  %194 = icmp eq i64 %193, 0
  br i1 %194, label %195, label %232

195:
  %196 = load i64, ptr %48, align 8
  %197 = icmp ne i64 %196, 0
  %198 = and i1 %197, %153
  br i1 %198, label %199, label %227

199:
  %200 = phi i64 [ %218, %217 ], [ %196, %195 ]
  %201 = phi ptr [ %223, %217 ], [ %122, %195 ]
  %202 = phi i64 [ %219, %217 ], [ 0, %195 ]
  %203 = getelementptr inbounds nuw i8, ptr %201, i64 16
  %204 = load i64, ptr %203, align 8
  %205 = icmp eq i64 %204, 0
  br i1 %205, label %217, label %206

206:
  %207 = sub nuw nsw i64 -3, %202
  %208 = getelementptr inbounds i64, ptr %25, i64 %207
  %209 = load ptr, ptr %208, align 8
  %210 = icmp eq ptr %209, null
  br i1 %210, label %232, label %211

211:
  %212 = call fastcc ptr @new_output(ptr noundef nonnull %201, ptr noundef %25, ptr noundef nonnull %209)
  %213 = icmp eq ptr %212, null
  br i1 %213, label %232, label %214

214:
  %215 = call i32 @PyTuple_SetItem(ptr noundef nonnull %150, i64 noundef %202, ptr noundef nonnull %212)
  %216 = load i64, ptr %48, align 8
  br label %217

217:
  %218 = phi i64 [ %216, %214 ], [ %200, %199 ]
  %219 = add nuw nsw i64 %202, 1
  %220 = getelementptr inbounds nuw i8, ptr %201, i64 32
  %221 = getelementptr inbounds nuw i8, ptr %201, i64 24
  %222 = load i64, ptr %221, align 8
  %223 = getelementptr inbounds i64, ptr %220, i64 %222
  %224 = icmp ne i64 %218, 0
  %225 = icmp slt i64 %219, %8
  %226 = select i1 %224, i1 %225, i1 false
  br i1 %226, label %199, label %227

227:
  %228 = phi i1 [ %197, %195 ], [ %224, %217 ]
  br i1 %228, label %229, label %272

229:
  %230 = getelementptr inbounds nuw i8, ptr %0, i64 88
  %231 = load ptr, ptr %230, align 8
  call fastcc void @keep_blocks(ptr noundef %25, ptr noundef %231)
  br label %272

232:
  call void @PyErr_Clear()
  call void @Py_DecRef(ptr noundef nonnull %150)
  %233 = getelementptr inbounds nuw i8, ptr %0, i64 88
  %234 = load ptr, ptr %233, align 8
  %235 = getelementptr inbounds i8, ptr %25, i64 -8
  %236 = load ptr, ptr %235, align 8
  %237 = icmp eq ptr %236, null
  br i1 %237, label %254, label %238

238:
  %239 = phi ptr [ %241, %251 ], [ %236, %232 ]
  %240 = phi ptr [ %252, %251 ], [ null, %232 ]
  %241 = load ptr, ptr %239, align 8
  %242 = getelementptr inbounds nuw i8, ptr %239, i64 16
  %243 = load i64, ptr %242, align 8
  %244 = icmp eq i64 %243, 0
  br i1 %244, label %245, label %251

245:
  %246 = getelementptr inbounds nuw i8, ptr %239, i64 8
  %247 = load i64, ptr %246, align 8
  %248 = icmp sgt i64 %247, 65535
  br i1 %248, label %249, label %250

249:
  store ptr %240, ptr %239, align 8
  br label %251

250:
  call void @PyMem_RawFree(ptr noundef nonnull %239)
  br label %251

251:
  %252 = phi ptr [ %239, %249 ], [ %240, %250 ], [ %240, %238 ]
  %253 = icmp eq ptr %241, null
  br i1 %253, label %254, label %238

254:
  %255 = phi ptr [ null, %232 ], [ %252, %251 ]
  %256 = getelementptr inbounds i8, ptr %25, i64 -16
  %257 = load ptr, ptr %256, align 8
  %258 = icmp eq ptr %257, null
  br i1 %258, label %263, label %259

259:
  %260 = phi ptr [ %261, %259 ], [ %257, %254 ]
  %261 = load ptr, ptr %260, align 8
  call void @PyMem_RawFree(ptr noundef nonnull %260)
  %262 = icmp eq ptr %261, null
  br i1 %262, label %263, label %259

263:
  %264 = load ptr, ptr %234, align 8
  store ptr %255, ptr %234, align 8
  %265 = icmp eq ptr %264, null
  br i1 %265, label %270, label %266

266:
  %267 = phi ptr [ %268, %266 ], [ %264, %263 ]
  %268 = load ptr, ptr %267, align 8
  call void @PyMem_RawFree(ptr noundef nonnull %267)
  %269 = icmp eq ptr %268, null
  br i1 %269, label %270, label %266

270:
  %271 = call ptr @PyBool_FromLong(i64 noundef 0)
  br label %272

272:
  %273 = phi ptr [ %14, %13 ], [ %113, %112 ], [ %134, %133 ], [ %148, %144 ], [ null, %149 ], [ %271, %270 ], [ %150, %229 ], [ %150, %227 ]
  ret ptr %273
}

define internal ptr @allocate(ptr noundef captures(address) %0, i64 noundef %1, i64 noundef %2) {
  %4 = icmp ult i64 %2, 1073741824
  br i1 %4, label %5, label %50

5:
  %6 = icmp slt i64 %1, 0
  %7 = icmp samesign ugt i64 %2, 65535
  %8 = and i1 %6, %7
  br i1 %8, label %9, label %44

9:
  %10 = getelementptr inbounds i8, ptr %0, i64 -16
  %11 = shl nuw nsw i64 %2, 1
  %12 = load ptr, ptr %10, align 8
  %13 = icmp eq ptr %12, null
  br i1 %13, label %44, label %14

14:
  %15 = phi ptr [ %37, %35 ], [ %12, %9 ]
  %16 = phi ptr [ %15, %35 ], [ %10, %9 ]
  %17 = phi ptr [ %36, %35 ], [ null, %9 ]
  %18 = getelementptr inbounds nuw i8, ptr %15, i64 16
  %19 = load i64, ptr %18, align 8
  %20 = icmp eq i64 %19, 0
  br i1 %20, label %21, label %35

21:
  %22 = getelementptr inbounds nuw i8, ptr %15, i64 8
  %23 = load i64, ptr %22, align 8
  %24 = icmp slt i64 %23, %2
  %25 = icmp sgt i64 %23, %11
  %26 = or i1 %24, %25
  br i1 %26, label %35, label %27

27:
  %28 = icmp eq ptr %17, null
  br i1 %28, label %34, label %29

29:
  %30 = load ptr, ptr %17, align 8
  %31 = getelementptr inbounds nuw i8, ptr %30, i64 8
  %32 = load i64, ptr %31, align 8
  %33 = icmp slt i64 %23, %32
  br i1 %33, label %34, label %35

34:
  br label %35

35:
  %36 = phi ptr [ %17, %14 ], [ %16, %34 ], [ %17, %29 ], [ %17, %21 ]
  %37 = load ptr, ptr %15, align 8
  %38 = icmp eq ptr %37, null
  br i1 %38, label %39, label %14

39:
  %40 = icmp eq ptr %36, null
  br i1 %40, label %44, label %41

41:
  %42 = load ptr, ptr %36, align 8
  %43 = load ptr, ptr %42, align 8
  store ptr %43, ptr %36, align 8
  br label %51

44:
  %45 = add nuw nsw i64 %2, 88
  %46 = tail call ptr @PyMem_RawMalloc(i64 noundef %45)
  %47 = icmp eq ptr %46, null
  br i1 %47, label %50, label %48

48:
  %49 = getelementptr inbounds nuw i8, ptr %46, i64 8
  store i64 %2, ptr %49, align 8
  br label %51

50:
  store i64 -1, ptr %0, align 8
  br label %66

51:
  %52 = phi ptr [ %46, %48 ], [ %42, %41 ]
  %53 = getelementptr inbounds i8, ptr %0, i64 -8
  %54 = load ptr, ptr %53, align 8
  store ptr %54, ptr %52, align 8
  store ptr %52, ptr %53, align 8
  %55 = getelementptr inbounds nuw i8, ptr %52, i64 16
  store i64 0, ptr %55, align 8
  %56 = icmp sgt i64 %1, -1
  br i1 %56, label %57, label %60

57:
  %58 = sub nuw nsw i64 -3, %1
  %59 = getelementptr inbounds i64, ptr %0, i64 %58
  store ptr %52, ptr %59, align 8
  br label %60

60:
  %61 = getelementptr inbounds nuw i8, ptr %52, i64 24
  %62 = ptrtoint ptr %61 to i64
  %63 = sub i64 0, %62
  %64 = and i64 %63, 63
  %65 = getelementptr inbounds nuw i8, ptr %61, i64 %64
  br label %66

66:
  %67 = phi ptr [ %65, %60 ], [ null, %50 ]
  ret ptr %67
}

declare ptr @PyLong_AsVoidPtr(ptr noundef) local_unnamed_addr

declare ptr @PyLong_FromLongLong(i64 noundef) local_unnamed_addr

declare ptr @PyTuple_New(i64 noundef) local_unnamed_addr

define internal fastcc ptr @new_output(ptr noundef readonly captures(none) %0, ptr noundef nonnull readonly captures(none) %1, ptr noundef %2) unnamed_addr {
  %4 = alloca i64, align 8
  %5 = alloca [64 x i64], align 16
  call void @llvm.lifetime.start.p0(ptr nonnull %5)
  %6 = getelementptr inbounds nuw i8, ptr %0, i64 32
  %7 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %8 = load i64, ptr %7, align 8
  %9 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %10 = load i64, ptr %9, align 8
  %11 = icmp eq ptr %2, null
  br i1 %11, label %15, label %12

12:
  %13 = getelementptr inbounds nuw i8, ptr %2, i64 8
  %14 = load i64, ptr %13, align 8
  br label %15

15:
  %16 = phi i64 [ %14, %12 ], [ 1073741823, %3 ]
  %17 = icmp ule i64 %10, %16
  %18 = icmp sgt i64 %8, 0
  br i1 %18, label %19, label %64

19:
  %20 = zext i1 %17 to i32
  br label %21

21:
  %22 = phi i64 [ %10, %19 ], [ %54, %53 ]
  %23 = phi i64 [ %10, %19 ], [ %55, %53 ]
  %24 = phi i64 [ 0, %19 ], [ %57, %53 ]
  %25 = phi i32 [ %20, %19 ], [ %56, %53 ]
  %26 = phi i32 [ 0, %19 ], [ %39, %53 ]
  %27 = getelementptr inbounds nuw i64, ptr %6, i64 %24
  %28 = load i64, ptr %27, align 8
  %29 = icmp slt i64 %28, 0
  br i1 %29, label %30, label %35

30:
  %31 = sub nsw i64 0, %28
  %32 = getelementptr inbounds nuw i64, ptr %1, i64 %31
  %33 = load i64, ptr %32, align 8
  %34 = icmp sgt i64 %33, -1
  br i1 %34, label %35, label %147

35:
  %36 = phi i64 [ %33, %30 ], [ %28, %21 ]
  %37 = icmp eq i64 %36, 0
  %38 = zext i1 %37 to i32
  %39 = or i32 %26, %38
  %40 = icmp eq i32 %25, 0
  br i1 %40, label %53, label %41

41:
  %42 = or i64 %36, %23
  %43 = icmp ugt i64 %42, 4294967295
  %44 = icmp ne i64 %36, 0
  %45 = and i1 %44, %43
  br i1 %45, label %46, label %49

46:
  %47 = udiv i64 %16, %36
  %48 = icmp ugt i64 %23, %47
  br i1 %48, label %53, label %49

49:
  %50 = mul i64 %36, %23
  %51 = icmp ule i64 %50, %16
  %52 = zext i1 %51 to i32
  br label %53

53:
  %54 = phi i64 [ %22, %35 ], [ %22, %46 ], [ %50, %49 ]
  %55 = phi i64 [ %23, %35 ], [ %23, %46 ], [ %50, %49 ]
  %56 = phi i32 [ 0, %35 ], [ 0, %46 ], [ %52, %49 ]
  %57 = add nuw nsw i64 %24, 1
  %58 = icmp eq i64 %57, %8
  br i1 %58, label %59, label %21

59:
  %60 = or i32 %56, %39
  %61 = icmp eq i32 %39, 0
  %62 = icmp eq i32 %60, 0
  %63 = select i1 %61, i64 %54, i64 0
  br i1 %62, label %147, label %65

64:
  br i1 %17, label %79, label %147

65:
  %66 = phi i64 [ %77, %74 ], [ 0, %59 ]
  %67 = getelementptr inbounds nuw i64, ptr %6, i64 %66
  %68 = load i64, ptr %67, align 8
  %69 = icmp slt i64 %68, 0
  br i1 %69, label %70, label %74

70:
  %71 = sub nsw i64 0, %68
  %72 = getelementptr inbounds nuw i64, ptr %1, i64 %71
  %73 = load i64, ptr %72, align 8
  br label %74

74:
  %75 = phi i64 [ %73, %70 ], [ %68, %65 ]
  %76 = getelementptr inbounds nuw i64, ptr %5, i64 %66
  store i64 %75, ptr %76, align 8
  %77 = add nuw nsw i64 %66, 1
  %78 = icmp eq i64 %77, %8
  br i1 %78, label %79, label %65

79:
  %80 = phi i64 [ %10, %64 ], [ %63, %74 ]
  br i1 %11, label %81, label %122

81:
  %82 = load ptr, ptr %0, align 8
  call void @llvm.lifetime.start.p0(ptr nonnull %4)
  %83 = add nsw i64 %80, 64
  store i64 %83, ptr %4, align 8
  %84 = icmp slt i64 %80, 4096
  br i1 %84, label %85, label %91

85:
  tail call void @Py_IncRef(ptr noundef %82)
  %86 = load ptr, ptr @PyArray_API, align 8
  %87 = getelementptr inbounds nuw i8, ptr %86, i64 1472
  %88 = load ptr, ptr %87, align 8
  %89 = trunc i64 %8 to i32
  %90 = call ptr %88(i32 noundef %89, ptr noundef nonnull %5, ptr noundef %82, i32 noundef 0)
  br label %120

91:
  %92 = load ptr, ptr @PyArray_API, align 8
  %93 = getelementptr inbounds nuw i8, ptr %92, i64 1472
  %94 = load ptr, ptr %93, align 8
  %95 = getelementptr inbounds nuw i8, ptr %92, i64 360
  %96 = load ptr, ptr %95, align 8
  %97 = tail call ptr %96(i32 noundef 2)
  %98 = call ptr %94(i32 noundef 1, ptr noundef nonnull %4, ptr noundef %97, i32 noundef 0)
  %99 = icmp eq ptr %98, null
  br i1 %99, label %120, label %100

100:
  %101 = getelementptr inbounds nuw i8, ptr %98, i64 16
  %102 = load ptr, ptr %101, align 8
  %103 = ptrtoint ptr %102 to i64
  %104 = add i64 %103, 63
  %105 = and i64 %104, -64
  %106 = inttoptr i64 %105 to ptr
  call void @Py_IncRef(ptr noundef %82)
  %107 = load ptr, ptr @PyArray_API, align 8
  %108 = getelementptr inbounds nuw i8, ptr %107, i64 752
  %109 = load ptr, ptr %108, align 8
  %110 = load ptr, ptr @array_type, align 8
  %111 = trunc i64 %8 to i32
  %112 = call ptr %109(ptr noundef %110, ptr noundef %82, i32 noundef %111, ptr noundef nonnull %5, ptr noundef null, ptr noundef %106, i32 noundef 1281, ptr noundef null)
  %113 = icmp eq ptr %112, null
  br i1 %113, label %119, label %114

114:
  %115 = load ptr, ptr @PyArray_API, align 8
  %116 = getelementptr inbounds nuw i8, ptr %115, i64 2256
  %117 = load ptr, ptr %116, align 8
  %118 = call i32 %117(ptr noundef nonnull %112, ptr noundef nonnull %98)
  br label %120

119:
  call void @Py_DecRef(ptr noundef nonnull %98)
  br label %120

120:
  %121 = phi ptr [ %90, %85 ], [ null, %91 ], [ %112, %114 ], [ null, %119 ]
  call void @llvm.lifetime.end.p0(ptr nonnull %4)
  br label %147

122:
  %123 = tail call ptr @PyCapsule_New(ptr noundef nonnull %2, ptr noundef null, ptr noundef nonnull @release_owner)
  %124 = icmp eq ptr %123, null
  br i1 %124, label %147, label %125

125:
  %126 = getelementptr inbounds nuw i8, ptr %2, i64 16
  store i64 1, ptr %126, align 8
  %127 = load ptr, ptr %0, align 8
  %128 = load i64, ptr %7, align 8
  %129 = getelementptr inbounds nuw i8, ptr %2, i64 24
  %130 = ptrtoint ptr %129 to i64
  %131 = sub i64 0, %130
  %132 = and i64 %131, 63
  %133 = getelementptr inbounds nuw i8, ptr %129, i64 %132
  tail call void @Py_IncRef(ptr noundef %127)
  %134 = load ptr, ptr @PyArray_API, align 8
  %135 = getelementptr inbounds nuw i8, ptr %134, i64 752
  %136 = load ptr, ptr %135, align 8
  %137 = load ptr, ptr @array_type, align 8
  %138 = trunc i64 %128 to i32
  %139 = call ptr %136(ptr noundef %137, ptr noundef %127, i32 noundef %138, ptr noundef nonnull %5, ptr noundef null, ptr noundef nonnull %133, i32 noundef 1281, ptr noundef null)
  %140 = icmp eq ptr %139, null
  br i1 %140, label %146, label %141

141:
  %142 = load ptr, ptr @PyArray_API, align 8
  %143 = getelementptr inbounds nuw i8, ptr %142, i64 2256
  %144 = load ptr, ptr %143, align 8
  %145 = call i32 %144(ptr noundef nonnull %139, ptr noundef nonnull %123)
  br label %147

146:
  call void @Py_DecRef(ptr noundef nonnull %123)
  br label %147

147:
  %148 = phi ptr [ null, %146 ], [ null, %64 ], [ %121, %120 ], [ null, %122 ], [ %139, %141 ], [ null, %59 ], [ null, %30 ]
  call void @llvm.lifetime.end.p0(ptr nonnull %5)
  ret ptr %148
}

declare i32 @PyTuple_SetItem(ptr noundef, i64 noundef, ptr noundef) local_unnamed_addr

declare ptr @PyEval_SaveThread() local_unnamed_addr

declare void @PyEval_RestoreThread(ptr noundef) local_unnamed_addr

define internal fastcc void @keep_blocks(ptr noundef nonnull readonly captures(none) %0, ptr noundef captures(none) %1) unnamed_addr {
  %3 = getelementptr inbounds i8, ptr %0, i64 -8
  %4 = load ptr, ptr %3, align 8
  %5 = icmp eq ptr %4, null
  br i1 %5, label %22, label %6

6:
  %7 = phi ptr [ %9, %19 ], [ %4, %2 ]
  %8 = phi ptr [ %20, %19 ], [ null, %2 ]
  %9 = load ptr, ptr %7, align 8
  %10 = getelementptr inbounds nuw i8, ptr %7, i64 16
  %11 = load i64, ptr %10, align 8
  %12 = icmp eq i64 %11, 0
  br i1 %12, label %13, label %19

13:
  %14 = getelementptr inbounds nuw i8, ptr %7, i64 8
  %15 = load i64, ptr %14, align 8
  %16 = icmp sgt i64 %15, 65535
  br i1 %16, label %17, label %18

17:
  store ptr %8, ptr %7, align 8
  br label %19

18:
  tail call void @PyMem_RawFree(ptr noundef nonnull %7)
  br label %19

19:
  %20 = phi ptr [ %7, %17 ], [ %8, %18 ], [ %8, %6 ]
  %21 = icmp eq ptr %9, null
  br i1 %21, label %22, label %6

22:
  %23 = phi ptr [ null, %2 ], [ %20, %19 ]
  %24 = getelementptr inbounds i8, ptr %0, i64 -16
  %25 = load ptr, ptr %24, align 8
  %26 = icmp eq ptr %25, null
  br i1 %26, label %31, label %27

27:
  %28 = phi ptr [ %29, %27 ], [ %25, %22 ]
  %29 = load ptr, ptr %28, align 8
  tail call void @PyMem_RawFree(ptr noundef nonnull %28)
  %30 = icmp eq ptr %29, null
  br i1 %30, label %31, label %27

31:
  %32 = load ptr, ptr %1, align 8
  store ptr %23, ptr %1, align 8
  %33 = icmp eq ptr %32, null
  br i1 %33, label %38, label %34

34:
  %35 = phi ptr [ %36, %34 ], [ %32, %31 ]
  %36 = load ptr, ptr %35, align 8
  tail call void @PyMem_RawFree(ptr noundef nonnull %35)
  %37 = icmp eq ptr %36, null
  br i1 %37, label %38, label %34

38:
  ret void
}

declare void @PyErr_Clear() local_unnamed_addr

declare void @Py_DecRef(ptr noundef) local_unnamed_addr

declare ptr @PyBool_FromLong(i64 noundef) local_unnamed_addr

declare ptr @PyMem_RawMalloc(i64 noundef) local_unnamed_addr

declare ptr @PyCapsule_New(ptr noundef, ptr noundef, ptr noundef) local_unnamed_addr

define internal void @release_owner(ptr noundef %0) {
  %2 = tail call ptr @PyCapsule_GetPointer(ptr noundef %0, ptr noundef null)
  tail call void @PyMem_RawFree(ptr noundef %2)
  ret void
}

declare void @Py_IncRef(ptr noundef) local_unnamed_addr

declare ptr @PyCapsule_GetPointer(ptr noundef, ptr noundef) local_unnamed_addr

declare i64 @llvm.smax.i64(i64, i64)
