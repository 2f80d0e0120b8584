"""What other programs document of the files that ``advise --emit`` writes.

Facts only: names, types and values.
"""

# Keys of the group [property]: "Gst-nvinfer", DeepStream developer guide
# (docs.nvidia.com/metropolis/deepstream/dev-guide/text/DS_plugin_gst-nvinfer.html), and names in
# gstnvinfer_property_parser.h of its API reference. Kinds are those with which nvinfer reads a key.
NVINFER_KEYS = {
    "batch-size": "integer",
    "classifier-async-mode": "integer",
    "classifier-threshold": "number",
    "classifier-type": "text",
    "cluster-mode": "integer",
    "crop-objects-to-roi-boundary": "integer",
    "custom-lib-path": "text",
    "custom-network-config": "text",
    "enable-dla": "integer",
    "engine-create-func-name": "text",
    "filter-out-class-ids": "list",
    "force-implicit-batch-dim": "integer",
    "gie-unique-id": "integer",
    "gpu-id": "integer",
    "infer-dims": "list",
    "input-object-max-height": "integer",
    "input-object-max-width": "integer",
    "input-object-min-height": "integer",
    "input-object-min-width": "integer",
    "input-tensor-from-meta": "integer",
    "int8-calib-file": "text",
    "interval": "integer",
    "labelfile-path": "text",
    "layer-device-precision": "list",
    "maintain-aspect-ratio": "integer",
    "mean-file": "text",
    "model-color-format": "integer",
    "model-engine-file": "text",
    "net-scale-factor": "number",
    "network-input-order": "integer",
    "network-mode": "integer",
    "network-type": "integer",
    "num-detected-classes": "integer",
    "offsets": "list",
    "onnx-file": "text",
    "operate-on-class-ids": "list",
    "operate-on-gie-id": "integer",
    "output-blob-names": "list",
    "output-instance-mask": "integer",
    "output-io-formats": "list",
    "output-tensor-meta": "integer",
    "parse-bbox-func-name": "text",
    "parse-bbox-instance-mask-func-name": "text",
    "parse-classifier-func-name": "text",
    "process-mode": "integer",
    "scaling-compute-hw": "integer",
    "scaling-filter": "integer",
    "secondary-reinfer-interval": "integer",
    "segmentation-output-order": "integer",
    "segmentation-threshold": "number",
    "symmetric-padding": "integer",
    "tensor-meta-pool-size": "integer",
    "use-dla-core": "integer",
    "workspace-size": "integer",
}
NETWORK_MODES = {0: "fp32", 1: "int8", 2: "fp16"}

# "TensorRT Execution Provider", onnxruntime.ai/docs/execution-providers/TensorRT-ExecutionProvider
# .html: its table of session options. Python takes True and False for a bool.
ORT_OPTIONS = {
    "device_id": int,
    "trt_auxiliary_streams": int,
    "trt_build_heuristics_enable": bool,
    "trt_builder_optimization_level": int,
    "trt_context_memory_sharing_enable": bool,
    "trt_detailed_build_log": bool,
    "trt_dla_core": int,
    "trt_dla_enable": bool,
    "trt_dump_subgraphs": bool,
    "trt_engine_cache_enable": bool,
    "trt_engine_cache_path": str,
    "trt_extra_plugin_lib_paths": str,
    "trt_force_sequential_engine_build": bool,
    "trt_force_timing_cache": bool,
    "trt_fp16_enable": bool,
    "trt_int8_calibration_table_name": str,
    "trt_int8_enable": bool,
    "trt_int8_use_native_calibration_table": bool,
    "trt_layer_norm_fp32_fallback": bool,
    "trt_max_partition_iterations": int,
    "trt_max_workspace_size": int,
    "trt_min_subgraph_size": int,
    "trt_profile_max_shapes": str,
    "trt_profile_min_shapes": str,
    "trt_profile_opt_shapes": str,
    "trt_sparsity_enable": bool,
    "trt_tactic_sources": str,
    "trt_timing_cache_enable": bool,
}

# "Model Export", docs.ultralytics.com/modes/export/: its table of arguments; "model" and "format"
# are those of its command line.
ULTRALYTICS_ARGUMENTS = {
    "batch": int,
    "data": str,
    "device": str,
    "dynamic": bool,
    "format": str,
    "fraction": float,
    "half": bool,
    "imgsz": tuple,
    "int8": bool,
    "keras": bool,
    "model": str,
    "nms": bool,
    "opset": int,
    "optimize": bool,
    "simplify": bool,
    "workspace": float,
}

# model_config.proto of github.com/triton-inference-server/common: the fields that we write, with
# their numbers and types. A type that is not one of these words is a message or an enumeration.
TRITON_MESSAGES = {
    "ModelInput": {
        "name": (1, "string"),
        "data_type": (2, "DataType"),
        "dims": (4, "repeated int64"),
    },
    "ModelOutput": {
        "name": (1, "string"),
        "data_type": (2, "DataType"),
        "dims": (3, "repeated int64"),
    },
    "SecondaryDevice": {"kind": (1, "SecondaryDeviceKind"), "device_id": (2, "int64")},
    "ModelInstanceGroup": {
        "count": (2, "int32"),
        "kind": (4, "Kind"),
        "secondary_devices": (8, "repeated SecondaryDevice"),
    },
    "ModelConfig": {
        "name": (1, "string"),
        "platform": (2, "string"),
        "max_batch_size": (4, "int32"),
        "input": (5, "repeated ModelInput"),
        "output": (6, "repeated ModelOutput"),
        "instance_group": (7, "repeated ModelInstanceGroup"),
    },
}
TRITON_ENUMERATIONS = {
    "DataType": (
        *("TYPE_INVALID", "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64"),
        *("TYPE_INT8", "TYPE_INT16", "TYPE_INT32", "TYPE_INT64", "TYPE_FP16", "TYPE_FP32"),
        *("TYPE_FP64", "TYPE_STRING", "TYPE_BF16"),
    ),
    "Kind": ("KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"),
    "SecondaryDeviceKind": ("KIND_NVDLA",),
}
