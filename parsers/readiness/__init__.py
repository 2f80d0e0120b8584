"""Whether a model is ready for the DLA: NVIDIA's rules as data, and the judgement by them."""
