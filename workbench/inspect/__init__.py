"""Judge whether a model is ready for the DLA: NVIDIA's rules as data, judgement, report, drawing.

Reading ONNX files is not here: see ``collectors/models``.
"""
