"""Text of workers, trtexec and TensorRT's build log becomes records."""
