"""Records from the text of workers, of trtexec and of TensorRT's build log."""
