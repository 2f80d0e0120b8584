"""ONNX files: bytes to records, without the onnx package. What a DLA accepts is not here."""
