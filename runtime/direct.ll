; The short way of a call, as Python sees a function of C: it looks at the arrays itself, calls the entry function
; without Python's lock, and says whether it did. Addresses in capitals are put in when this is compiled.
;
; %self is a bytes object, numbers of 64 bits: the entry function, its weights, how many inputs, how many outputs; then of
; each input its element type (the address of the dtype), its rank and its dims.
; %args are the inputs, arrays for the outputs, which are known to fit, and the address of the arena or 0.

define ptr @mirlo_call(ptr %self, ptr %args, i64 %count) {
entry:
  %state = getelementptr i8, ptr %self, i64 BYTES_DATA
  %inputs_p = getelementptr i64, ptr %state, i64 2
  %inputs = load i64, ptr %inputs_p
  %outputs_p = getelementptr i64, ptr %state, i64 3
  %outputs = load i64, ptr %outputs_p
  %first = getelementptr i64, ptr %state, i64 4
  %tensors = add i64 %inputs, %outputs
  %wanted = add i64 %tensors, 1
  %fits = icmp eq i64 %count, %wanted
  ; One more, null: the call record, which is for calls of Python functions.
  %pointers = alloca ptr, i64 %wanted
  %record = getelementptr ptr, ptr %pointers, i64 %tensors
  store ptr null, ptr %record
  br i1 %fits, label %next, label %no

next:
  %i = phi i64 [ 0, %entry ], [ %following, %same_dims ]
  %spec = phi ptr [ %first, %entry ], [ %after, %same_dims ]
  %more = icmp ult i64 %i, %inputs
  br i1 %more, label %look, label %rest
look:
  %slot = getelementptr ptr, ptr %args, i64 %i
  %array = load ptr, ptr %slot
  %kind_p = getelementptr i8, ptr %array, i64 TYPE
  %kind = load i64, ptr %kind_p
  %is_array = icmp eq i64 %kind, NDARRAY
  br i1 %is_array, label %has_fields, label %no
has_fields:
  %dtype_p = getelementptr i8, ptr %array, i64 DTYPE
  %dtype = load i64, ptr %dtype_p
  %want_dtype = load i64, ptr %spec
  %same_dtype = icmp eq i64 %dtype, %want_dtype
  %rank_p = getelementptr i8, ptr %array, i64 RANK
  %rank32 = load i32, ptr %rank_p
  %rank = sext i32 %rank32 to i64
  %want_rank_p = getelementptr i64, ptr %spec, i64 1
  %want_rank = load i64, ptr %want_rank_p
  %same_rank = icmp eq i64 %rank, %want_rank
  %flags_p = getelementptr i8, ptr %array, i64 FLAGS
  %flags = load i32, ptr %flags_p
  %bits = and i32 %flags, READABLE
  %readable = icmp eq i32 %bits, READABLE
  %both = and i1 %same_dtype, %same_rank
  %all = and i1 %both, %readable
  br i1 %all, label %shape, label %no
shape:
  %dims_p = getelementptr i8, ptr %array, i64 DIMS
  %dims = load ptr, ptr %dims_p
  %want_dims = getelementptr i64, ptr %spec, i64 2
  %after = getelementptr i64, ptr %want_dims, i64 %rank
  br label %dim
dim:
  %d = phi i64 [ 0, %shape ], [ %d1, %compare ]
  %left = icmp ult i64 %d, %rank
  br i1 %left, label %compare, label %same_dims
compare:
  %dim_p = getelementptr i64, ptr %dims, i64 %d
  %size = load i64, ptr %dim_p
  %want_dim_p = getelementptr i64, ptr %want_dims, i64 %d
  %want_size = load i64, ptr %want_dim_p
  %same_size = icmp eq i64 %size, %want_size
  %d1 = add i64 %d, 1
  br i1 %same_size, label %dim, label %no
same_dims:
  %data_p = getelementptr i8, ptr %array, i64 DATA
  %data = load ptr, ptr %data_p
  %pointer = getelementptr ptr, ptr %pointers, i64 %i
  store ptr %data, ptr %pointer
  %following = add i64 %i, 1
  br label %next

rest:
  %o = phi i64 [ %inputs, %next ], [ %o1, %output ]
  %has_output = icmp ult i64 %o, %tensors
  br i1 %has_output, label %output, label %run
output:
  %made_p = getelementptr ptr, ptr %args, i64 %o
  %made = load ptr, ptr %made_p
  %made_data_p = getelementptr i8, ptr %made, i64 DATA
  %made_data = load ptr, ptr %made_data_p
  %made_pointer = getelementptr ptr, ptr %pointers, i64 %o
  store ptr %made_data, ptr %made_pointer
  %o1 = add i64 %o, 1
  br label %rest

run:
  %arena_p = getelementptr ptr, ptr %args, i64 %tensors
  %arena_number = load ptr, ptr %arena_p
  %arena = call ptr inttoptr (i64 AS_POINTER to ptr)(ptr %arena_number)
  %function = load ptr, ptr %state
  %params_p = getelementptr i64, ptr %state, i64 1
  %params = load ptr, ptr %params_p
  %thread = call ptr inttoptr (i64 SAVE_THREAD to ptr)()
  call void %function(ptr %pointers, ptr %params, ptr %arena, ptr null)
  call void inttoptr (i64 RESTORE_THREAD to ptr)(ptr %thread)
  br label %yes

yes:
  call void inttoptr (i64 INCREF to ptr)(ptr inttoptr (i64 TRUE to ptr))
  ret ptr inttoptr (i64 TRUE to ptr)
no:
  call void inttoptr (i64 INCREF to ptr)(ptr inttoptr (i64 FALSE to ptr))
  ret ptr inttoptr (i64 FALSE to ptr)
}
