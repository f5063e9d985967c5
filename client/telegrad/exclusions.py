"""Names of torch that are not in Telegrad, each with the reason and what to use instead.

This is the only such list: the attribute errors of :mod:`telegrad`, its submodules and its Tensor are made from it,
and the tests that compare names with torch's skip these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple, TypeVar


def publish(namespace: dict[str, Any], name: str, function: Any) -> Any:
    """Make a function an attribute of the module with these globals, and pickle it by that name."""
    with suppress(AttributeError):  # functools.partial has no qualified name
        function.__qualname__, function.__module__ = name, namespace["__name__"]
    namespace[name] = function
    return function


_T = TypeVar("_T")


class Exclusion(NamedTuple):
    """Names that are missing for one reason, by torch namespace."""

    reason: str
    instead: str
    names: dict[str, str]
    """The names in each namespace, separated by spaces; "" is torch itself."""
    planned: bool = False
    """Whether the names are planned."""
    in_scope: bool = False
    """Whether comparisons by name count them as missing."""


EXCLUSIONS = (
    Exclusion(
        "TorchScript, its types and its interpreter",
        "telegrad.compile(function), and telegrad.register_function for functions that a server is to run",
        {
            "": "AVG AggregationType AliasDb AnyType Argument ArgumentSpec AwaitType BenchmarkConfig "
            "BenchmarkExecutionStats Block BoolType BufferDict CallStack Capsule ClassType Code CompilationUnit "
            "CompleteArgumentSpec ComplexType ConcreteModuleType ConcreteModuleTypeBuilder DeepCopyMemoTable "
            "DeviceObjType DictType EnumType ErrorReport ExecutionPlan FatalError FileCheck FloatType FunctionSchema "
            "Future FutureType Gradient Graph GraphExecutorState IODescriptor InferredType IntType InterfaceType "
            "JITException ListType LiteScriptModule LockingLogger LoggerBase ModuleDict Node NoneType NoopLogger "
            "NumberType OperatorInfo OptionalType PRIVATE_OPS ParameterDict PyObjectType RRefType SUM ScriptClass "
            "ScriptClassFunction ScriptDict ScriptDictIterator ScriptDictKeyIterator ScriptFunction ScriptList "
            "ScriptListIterator ScriptMethod ScriptModule ScriptModuleSerializer ScriptObject ScriptObjectProperty "
            "StaticModule StreamObjType StringType SymBoolType SymIntType Tag TensorType ThroughputBenchmark "
            "TracingState TupleType Type UnionType Use Value classes cpp fork import_ir_module "
            "import_ir_module_from_buffer jit merge_type_from_type_comment parse_ir parse_schema parse_type_comment "
            "unify_type_list wait futures",
            "nn.functional": "BroadcastingList1 BroadcastingList2 BroadcastingList3 boolean_dispatch",
            "nn": "common_types factory_kwargs",
        },
    ),
    Exclusion(
        "torch's dispatcher and the hooks into it",
        "telegrad.autograd.Function for ops of your own",
        {
            "": "DisableTorchFunction DisableTorchFunctionSubclass DispatchKey DispatchKeySet ExcludeDispatchKeyGuard "
            "library overrides",
            "nn.functional": "handle_torch_function has_torch_function has_torch_function_unary "
            "has_torch_function_variadic",
        },
    ),
    Exclusion(
        "torch.compile's compiler, its symbols and exported graphs",
        "telegrad.compile(function); sizes are plain ints",
        {
            "": "SymBool SymFloat SymInt compiler cond export fx onnx sym_constrain_range sym_constrain_range_for_size "
            "sym_float sym_fresh_size sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum",
        },
    ),
    Exclusion(
        "storages: the memory of tensors is the session's",
        "views, tensor.data_ptr() to tell whether two tensors share memory, tensor.numpy() for the values",
        {
            "": "BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage ComplexFloatStorage "
            "DeserializationStorageContext DoubleStorage FloatStorage HalfStorage IntStorage LongStorage QInt32Storage "
            "QInt8Storage QUInt2x4Storage QUInt4x2Storage QUInt8Storage SerializationStorageContext ShortStorage "
            "Storage StorageBase TypedStorage UntypedStorage PyTorchFileReader PyTorchFileWriter from_file "
            "resize_as_ storage",
            "Tensor": "resize resize_ resize_as resize_as_ set_ storage storage_type untyped_storage module_load",
            "cuda": "BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage ComplexFloatStorage "
            "DoubleStorage FloatStorage HalfStorage IntStorage LongStorage ShortStorage",
        },
    ),
    Exclusion(
        "sparse tensors",
        "dense tensors; telegrad.gather, scatter_add and index_add work on indices and values",
        {
            "": "ccol_indices_copy col_indices_copy crow_indices_copy dsmm hsmm hspmm indices_copy resize_as_sparse_ "
            "row_indices_copy saddmm slice_inverse smm sparse sparse_bsc sparse_bsc_tensor sparse_bsr "
            "sparse_bsr_tensor sparse_compressed_tensor sparse_coo sparse_coo_tensor sparse_csc sparse_csc_tensor "
            "sparse_csr sparse_csr_tensor spmm sspaddmm values_copy",
            "Tensor": "ccol_indices coalesce col_indices crow_indices indices is_coalesced resize_as_sparse_ "
            "row_indices slice_inverse smm sparse_mask sparse_resize_ sparse_resize_and_clear_ sspaddmm to_mkldnn "
            "to_sparse to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr values",
            "nn.functional": "sparse_support_notes",
        },
    ),
    Exclusion(
        "nested and jagged tensors",
        "padded tensors with a mask, or telegrad.nn.utils.rnn.pack_padded_sequence",
        {"": "jagged nested", "Tensor": "to_padded_tensor"},
    ),
    Exclusion(
        "quantization and dtypes of fewer than 8 bits",
        "float16 or bfloat16, with telegrad.autocast",
        {
            "": "ao bit bits16 bits1x8 bits2x4 bits4x2 bits8 choose_qparams_optimized dequantize empty_quantized "
            "fake_quantize_per_channel_affine fake_quantize_per_tensor_affine fbgemm_linear_fp16_weight "
            "fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight "
            "fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16 "
            "fbgemm_pack_quantized_matrix float4_e2m1fn_x2 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz "
            "float8_e8m0fnu fused_moving_avg_obs_fake_quant int1 int2 int3 int4 int5 int6 int7 int_repr "
            "per_channel_affine per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine "
            "per_tensor_symmetric q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale "
            "q_zero_point qint32 qint8 qscheme quantization quantize_per_channel quantize_per_tensor "
            "quantize_per_tensor_dynamic quantized_batch_norm quantized_gru quantized_gru_cell quantized_lstm "
            "quantized_lstm_cell quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d "
            "quantized_rnn_relu_cell quantized_rnn_tanh_cell quint2x4 quint4x2 quint8 uint1 uint2 uint3 uint4 uint5 "
            "uint6 uint7",
            "Tensor": "dequantize int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale "
            "q_zero_point qscheme",
            "nn": "intrinsic qat quantizable quantized",
            "nn.functional": "ScalingType SwizzleType grouped_mm scaled_grouped_mm scaled_mm",
            "backends": "quantized",
        },
    ),
    Exclusion(
        "hashes of tensors",
        "Python's hashlib on tensor.numpy()",
        {"": "hash_tensor", "Tensor": "hash_tensor"},
    ),
    Exclusion(
        "kernels of one library, which torch chooses itself",
        "the function without the prefix or suffix, such as telegrad.nn.functional.batch_norm",
        {
            "": "batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats "
            "batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats cudnn_affine_grid_generator "
            "cudnn_batch_norm cudnn_convolution cudnn_convolution_add_relu cudnn_convolution_relu "
            "cudnn_convolution_transpose cudnn_grid_sampler cudnn_is_acceptable miopen_batch_norm miopen_convolution "
            "miopen_convolution_add_relu miopen_convolution_relu miopen_convolution_transpose miopen_ctc_loss "
            "miopen_depthwise_convolution miopen_rnn mkldnn_adaptive_avg_pool2d mkldnn_convolution "
            "mkldnn_linear_backward_weights mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_rnn_layer native_norm",
            "nn.functional": "tf32_notes",
            "nn.attention": "WARN_FOR_UNFUSED_KERNELS activate_flash_attention_impl bias current_flash_attention_impl "
            "flex_attention list_flash_attention_impls register_flash_attention_impl restore_flash_attention_impl "
            "varlen",
            "backends": "cusparselt kleidiai m miopen nnpack python_native xnnpack",
            "backends.cuda": "SDPAParams blas_workspace_size can_use_cudnn_attention can_use_efficient_attention "
            "can_use_flash_attention cuBLASModule cuFFTPlanCache cuFFTPlanCacheAttrContextProp cuFFTPlanCacheManager "
            "cublas_workspace_size cublaslt_workspace_size cufft_plan_cache preferred_blas_library "
            "preferred_linalg_library preferred_rocm_fa_library",
        },
    ),
    Exclusion(
        "other accelerators than NVIDIA's GPUs, and CUDA's streams, events, graphs and memory pools",
        "telegrad.cuda.synchronize() to wait; a session runs its programs in order on one device",
        {
            "": "AcceleratorError Event Stream accelerator autocast_decrement_nesting autocast_increment_nesting cpu "
            "get_autocast_ipu_dtype get_autocast_xla_dtype get_device_module is_autocast_ipu_enabled "
            "is_autocast_xla_enabled is_vulkan_available mps mtia set_autocast_ipu_dtype set_autocast_ipu_enabled "
            "set_autocast_xla_dtype set_autocast_xla_enabled thread_safe_generator xpu",
            "Tensor": "ipu mtia record_stream xpu",
            "random": "thread_safe_generator",
            "autograd.graph": "region_activation_memory_budget set_override_stale_capture_stream "
            "set_warn_on_accumulate_grad_stream_mismatch",
            "cuda": "BFloat16Tensor BoolTensor ByteTensor CUDAGraph CUDAPluggableAllocator CharTensor CudaError "
            "DeferredCudaCallError DoubleTensor Event ExternalStream FloatTensor GreenContext HalfTensor IntTensor "
            "LongTensor MemPool ShortTensor Stream StreamContext caching_allocator_alloc caching_allocator_delete "
            "caching_allocator_disabled caching_allocator_enable can_device_access_peer change_current_allocator "
            "check_error clock_rate cudaStatus cudart current_blas_handle current_solver_handle current_stream "
            "default_generators default_stream device_memory_used device_of get_allocator_backend get_arch_list "
            "get_device_capability get_device_properties get_gencode_flags get_per_process_memory_fraction "
            "get_rng_state get_rng_state_all get_stream_from_external get_sync_debug_mode graph graph_pool_handle "
            "graphs has_half has_magma host_memory_stats host_memory_stats_as_nested_dict is_current_stream_capturing "
            "jiterator list_gpu_processes make_graphed_callables max_memory_allocated max_memory_cached "
            "max_memory_reserved mem_get_info memory memory_allocated memory_cached memory_reserved memory_snapshot "
            "memory_stats memory_stats_as_nested_dict memory_summary memory_usage nccl nvtx power_draw profiler random "
            "reset_accumulated_host_memory_stats reset_accumulated_memory_stats reset_max_memory_allocated "
            "reset_max_memory_cached reset_peak_host_memory_stats reset_peak_memory_stats "
            "set_per_process_memory_fraction set_rng_state set_rng_state_all set_stream set_sync_debug_mode sparse "
            "stream streams temperature tunable use_mem_pool utilization",
        },
    ),
    Exclusion(
        "distributed training and processes that share tensors",
        "one session a process, each with its own connection; a server computes for many",
        {
            "": "distributed multiprocessing prepare_multiprocessing_environment",
            "nn": "DataParallel SyncBatchNorm parallel",
            "utils.data": "DistributedSampler",
        },
    ),
    Exclusion(
        "parts of torch around tensors",
        "packages made for that: huggingface_hub for models, importlib for code, a debugger for memory",
        {
            "": "contrib get_file_path hub monitor nativert numa package quasirandom",
            "utils.data": "DFIterDataPipe DataChunk IterDataPipe MapDataPipe argument_validation functional_datapipe "
            "guaranteed_datapipes_determinism non_deterministic runtime_validation runtime_validation_disabled "
            "_DatasetKind",
        },
    ),
    Exclusion(
        "pickles, and what torch allows in them",
        "telegrad.save and telegrad.load, which read and write data alone",
        {
            "serialization": "LoadEndianness SourceChangeWarning StorageType check_module_version_greater_or_equal "
            "default_restore_location get_crc32_options get_default_load_endianness get_default_mmap_options "
            "get_unsafe_globals_in_checkpoint location_tag normalize_storage_type register_package set_crc32_options "
            "set_default_load_endianness set_default_mmap_options skip_data storage_to_tensor_type "
            "validate_cuda_device validate_hpu_device",
        },
    ),
    Exclusion(
        "the parts of torch's checkpoints",
        "telegrad.utils.checkpoint.checkpoint",
        {
            "utils.checkpoint": "CheckpointFunction DefaultDeviceType GraphExecGroup SAC_IGNORED_OPS "
            "check_backward_validity detach_variable get_device_states set_checkpoint_debug_enabled set_device_states",
        },
    ),
    Exclusion(
        "how torch itself was built",
        "telegrad.__version__",
        {
            "": "USE_GLOBAL_DEPS USE_RTLD_GLOBAL_WITH_LIBTORCH classproperty compiled_with_cxx11_abi has_lapack "
            "has_mkl has_openmp has_spectral init_num_threads "
            "profiler_allow_cudagraph_cupti_lazy_reinit_cuda12 torch_version windows",
            "nn.functional": "GRID_SAMPLE_INTERPOLATION_MODES GRID_SAMPLE_PADDING_MODES assert_int_or_pair "
            "reproducibility_notes",
            "linalg": "common_notes",
        },
    ),
    Exclusion(
        "first-class dimensions",
        "indexing with tensors and ellipsis, or telegrad.einsum",
        {"Tensor": "index"},
    ),
    Exclusion(
        "modules and classes that torch imports for itself",
        "an import of the thing itself",
        {
            "": "ctypes functional functools glob importlib inspect legacy_contiguous_format math os platform sys "
            "textwrap threading torch types warnings",
            "nn": "grad",
            "nn.functional": "DType Optional dataclasses grad importlib math np torch",
        },
    ),
    Exclusion(
        "removed from torch, where it only raises",
        "telegrad.linalg.eigh, telegrad.linalg.lstsq, telegrad.linalg.solve, telegrad.linalg.matrix_rank",
        {
            "": "eig lstsq matrix_rank solve symeig",
            "Tensor": "eig lstsq reinforce solve symeig volatile",
            "autograd": "NestedIOFunction enforce_grad_layout_policy",
        },
    ),
    Exclusion(
        "autocast's settings by device, under deprecated names",
        "telegrad.autocast(device_type, dtype, enabled)",
        {
            "": "get_autocast_cpu_dtype get_autocast_gpu_dtype is_autocast_cpu_enabled set_autocast_cache_enabled "
            "set_autocast_cpu_dtype set_autocast_cpu_enabled set_autocast_dtype set_autocast_enabled "
            "set_autocast_gpu_dtype"
        },
    ),
    Exclusion(
        "complex numbers and Fourier transforms",
        "a pair of real tensors; numpy.fft on tensor.numpy()",
        {
            "": "cdouble cfloat chalf complex complex128 complex32 complex64 fft istft polar stft "
            "view_as_complex view_as_complex_copy view_as_real view_as_real_copy",
            "Tensor": "cdouble cfloat chalf istft stft",
            "linalg": "eig eigvals",
        },
        planned=True,
    ),
    Exclusion(
        "submodules that are not written",
        "the functions of telegrad and telegrad.linalg",
        {"": "distributions masked signal special"},
        planned=True,
        in_scope=True,
    ),
    Exclusion(
        "ops that are not in the catalogue",
        "telegrad.register_function for a function of your own, or NumPy or SciPy on tensor.numpy()",
        {
            "": "affine_grid_generator binomial detach_copy embedding_renorm_ feature_dropout_ "
            "geqrf histogramdd i0 i0_ igamma igammac lobpcg lu "
            "lu_solve lu_unpack matrix_exp native_batch_norm native_group_norm native_layer_norm ormqr orgqr "
            "pca_lowrank segment_reduce svd_lowrank to_dlpack",
            "Tensor": "geqrf i0 i0_ igamma igamma_ igammac igammac_ lu lu_solve matrix_exp orgqr ormqr",
            "linalg": "cholesky_ex householder_product inv_ex ldl_factor ldl_factor_ex ldl_solve lu lu_factor "
            "lu_factor_ex lu_solve matrix_exp solve_ex vander",
        },
        planned=True,
        in_scope=True,
    ),
    Exclusion(
        "optimizers that swap parameters' memory",
        "optimizer.load_state_dict(state)",
        {"optim": "swap_in_optimizer_params_and_state"},
    ),
)


def _table() -> dict[tuple[str, str], Exclusion]:
    table: dict[tuple[str, str], Exclusion] = {}
    for exclusion in EXCLUSIONS:
        for namespace, names in exclusion.names.items():
            for name in names.split():
                if (namespace, name) in table:
                    raise ValueError(f"{namespace}.{name} is excluded twice")
                table[namespace, name] = exclusion
    return table


TABLE = _table()
"""The exclusions by namespace and name."""


def explain(namespace: str, name: str) -> str | None:
    """Explain why torch's name in ``namespace`` is missing, and what to use instead; None for other names."""
    found = TABLE.get((namespace, name))
    if found is None:
        return None
    when = "not in Telegrad yet" if found.planned else "not in Telegrad"
    return f"{when} ({found.reason}). Use instead: {found.instead}"


class _Excluded:
    """An attribute of torch's class that ours lacks: access raises an error that says why."""

    def __init__(self, namespace: str, name: str) -> None:
        self._namespace, self._name = namespace, name

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        what = f"type object '{owner.__name__}'" if instance is None else f"'{owner.__name__}' object"
        raise AttributeError(f"{what} has no attribute {self._name!r}: {explain(self._namespace, self._name)}")


def explain_missing(cls: type[_T]) -> type[_T]:
    """Make the errors for attributes that torch's class has and this one lacks say why.

    The attributes are descriptors, because ``__getattr__`` would slow down each access to an instance.
    """
    excluded = {name for namespace, name in TABLE if namespace == cls.__name__}
    listed = cls.__dir__
    members: dict[str, Any] = {name: _Excluded(cls.__name__, name) for name in excluded}
    members["__dir__"] = lambda instance: sorted({*listed(instance)} - excluded)
    for name, member in members.items():
        setattr(cls, name, member)
    return cls


def attribute_of(namespace: str, on_demand: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """Return a module's ``__getattr__``, which raises AttributeError and explains torch names that are left out.

    ``on_demand`` is as for :func:`import_on_demand`.
    """
    module = f"telegrad.{namespace}" if namespace else "telegrad"

    def find(name: str) -> Any:
        if on_demand and name in on_demand:
            return import_on_demand(module, on_demand, name)
        raise missing_attribute(module, namespace, name)

    return find


def import_on_demand(package: str, on_demand: Mapping[str, str], name: str) -> Any:
    """An attribute of a package whose module is imported when the attribute is first used.

    ``on_demand`` has the submodule of each such attribute; a submodule that is an attribute itself has its own name.
    """
    found = import_module(f"{package}.{on_demand[name]}")
    if name != on_demand[name]:
        found = getattr(found, name)
    return found


def missing_attribute(module: str, namespace: str, name: str) -> AttributeError:
    """The error for an attribute that a module lacks."""
    text = explain(namespace, name)
    return AttributeError(f"module {module!r} has no attribute {name!r}" + (f": {text}" if text else ""))
