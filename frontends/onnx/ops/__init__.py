"""Converters, one file per family of operators."""

INDEX = """
activation: Clip Gelu Hardmax LogSoftmax Softmax Swish com.microsoft:QuickGelu
affine_grid: AffineGrid
attention: Attention RotaryEmbedding
cast: BitCast Cast CastLike
causal_conv: CausalConvWithState
control: If Loop
conv: Conv ConvTranspose
create: Constant ConstantOfShape EyeLike Range Trilu
decode: ImageDecoder
dynamic_shapes: Expand/dynamic Pad/dynamic Reshape/dynamic Slice/dynamic Split/dynamic Squeeze/dynamic Unsqueeze/dynamic
elementwise: BitShift IsInf Max Mean Min Mod Pow Sum
folding: Abs/fold Add/fold And/fold ArgMax/fold ArgMin/fold Cast/fold CastLike/fold Ceil/fold Clip/fold Concat/fold
    ConstantOfShape/fold CumSum/fold Div/fold Equal/fold Exp/fold Expand/fold Flatten/fold Floor/fold Gather/fold
    Greater/fold GreaterOrEqual/fold Less/fold LessOrEqual/fold Log/fold Max/fold Mean/fold Min/fold Mod/fold Mul/fold
    Neg/fold NonZero/fold Not/fold Or/fold Pow/fold Range/fold Reciprocal/fold ReduceMax/fold ReduceMean/fold
    ReduceMin/fold ReduceProd/fold ReduceSum/fold Reshape/fold Round/fold Shape/fold Sign/fold Size/fold Slice/fold
    Split/fold Sqrt/fold Squeeze/fold Sub/fold Sum/fold Tile/fold Transpose/fold Unsqueeze/fold Where/fold Xor/fold
fourier: DFT STFT
gradient: ai.onnx.preview.training:Gradient
image: GridSample Resize Upsample com.microsoft:GridSample
index: Compress Gather GatherElements GatherND NonZero OneHot ReverseSequence Scatter ScatterElements ScatterND
    TensorScatter TopK Where
matmul: Einsum Gemm MatMul
microsoft: SimplifiedLayerNormalization com.microsoft:BiasGelu com.microsoft:FastGelu com.microsoft:FusedMatMul
    com.microsoft:Gelu com.microsoft:MatMulIntegerToFloat com.microsoft:QGemm com.microsoft:QLinearAdd
    com.microsoft:QLinearConcat com.microsoft:QLinearGlobalAveragePool com.microsoft:QLinearLeakyRelu
    com.microsoft:QLinearMul com.microsoft:QLinearSigmoid com.microsoft:SimplifiedLayerNormalization
    com.microsoft:SkipLayerNormalization com.microsoft:SkipSimplifiedLayerNormalization com.microsoft:TransposeMatMul
microsoft_attention: com.microsoft:Attention com.microsoft:DecoderMaskedMultiHeadAttention
    com.microsoft:EmbedLayerNormalization com.microsoft:FusedConv com.microsoft:FusedGemm com.microsoft:MRotaryEmbedding
    com.microsoft:MultiHeadAttention com.microsoft:QAttention com.microsoft:QEmbedLayerNormalization
    com.microsoft:RotaryEmbedding
microsoft_cache: com.microsoft:GroupQueryAttention
microsoft_linear: com.microsoft:BranchwiseRMSNorm com.microsoft:CausalConvWithState com.microsoft:GatedAdd
    com.microsoft:GatedDeltaNet com.microsoft:GatedRMSNorm com.microsoft:LinearAttention
    com.microsoft:LinearAttentionGate com.microsoft:ScaledSiLU
microsoft_moe: com.microsoft:MoE com.microsoft:QMoE
microsoft_nbits: com.microsoft:GatherBlockQuantized com.microsoft:MatMulBnb4 com.microsoft:MatMulNBits
microsoft_nchwc: com.microsoft.nchwc:AveragePool com.microsoft.nchwc:Conv com.microsoft.nchwc:GlobalAveragePool
    com.microsoft.nchwc:GlobalMaxPool com.microsoft.nchwc:MaxPool com.microsoft.nchwc:ReorderInput
    com.microsoft.nchwc:ReorderOutput com.microsoft.nchwc:Upsample
microsoft_paged: com.microsoft:PagedAttention
microsoft_quantized: com.microsoft:BiasAdd com.microsoft:BiasSplitGelu com.microsoft:CDist
    com.microsoft:DequantizeLinear com.microsoft:DynamicQuantizeMatMul com.microsoft:ExpandDims com.microsoft:GatherND
    com.microsoft:GroupNorm com.microsoft:MatMulInteger16 com.microsoft:NhwcMaxPool com.microsoft:Pad
    com.microsoft:QLinearAveragePool com.microsoft:QLinearReduceMean com.microsoft:QLinearSoftmax
    com.microsoft:QLinearWhere com.microsoft:QuantizeLinear com.microsoft:Range com.microsoft:SkipGroupNorm
    com.microsoft:Trilu
microsoft_recurrent: com.microsoft:DynamicQuantizeLSTM
microsoft_sparse: com.microsoft:SparseAttention
ml: ai.onnx.ml:ArrayFeatureExtractor ai.onnx.ml:Binarizer ai.onnx.ml:CategoryMapper ai.onnx.ml:FeatureVectorizer
    ai.onnx.ml:Imputer ai.onnx.ml:LabelEncoder ai.onnx.ml:Normalizer ai.onnx.ml:OneHotEncoder ai.onnx.ml:Scaler
ml_linear: ai.onnx.ml:LinearClassifier ai.onnx.ml:LinearRegressor
ml_maps: ai.onnx.ml:CastMap ai.onnx.ml:DictVectorizer ai.onnx.ml:ZipMap
ml_tree_classes: ai.onnx.ml:TreeEnsembleClassifier
ml_trees: ai.onnx.ml:TreeEnsemble ai.onnx.ml:TreeEnsembleRegressor
ml_vectors: ai.onnx.ml:SVMClassifier ai.onnx.ml:SVMRegressor
normalize: BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization LpNormalization
    MeanVarianceNormalization RMSNormalization
pool: AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool
quantize: ConvInteger DequantizeLinear MatMulInteger QLinearConv QLinearMatMul QuantizeLinear
random: Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike
recurrent: GRU LSTM RNN
reduce: ArgMax ArgMin CumProd CumSum ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
    ReduceProd ReduceSum ReduceSumSquare
scan: Scan
sequence: ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty
    SequenceErase SequenceInsert SequenceLength SplitToSequence
shape: Concat DepthToSpace Dropout Expand Flatten Identity Pad Reshape Shape Size Slice SpaceToDepth Split Squeeze Tile
    Transpose Unsqueeze
string: Equal RegexFullMatch StringConcat StringNormalizer StringSplit com.microsoft:Tokenizer
text: MelWeightMatrix TfIdfVectorizer
training: ai.onnx.preview.training:Adagrad ai.onnx.preview.training:Adam ai.onnx.preview.training:Momentum
unique: Unique com.microsoft:Unique
vision: Col2Im DeformConv MaxRoiPool MaxUnpool NonMaxSuppression RoiAlign
"""
"""The modules by the operators that each file converts or folds, those of other domains with their domain."""
