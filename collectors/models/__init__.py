"""Find, generate and load ONNX models. Building engines from them is not here."""
