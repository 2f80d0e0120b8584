"""Model files: find, generate and load ONNX models. What a back-end builds of them is not here."""
