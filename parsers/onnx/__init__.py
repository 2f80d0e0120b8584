"""Parse ONNX files to records, without the onnx package. The rules of the DLA are not here."""
