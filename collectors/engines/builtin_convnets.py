"""ResNet-50 and MobileNetV2, layer by layer as published, batch normalisation folded in.

Source:
    He et al., "Deep Residual Learning for Image Recognition", 2015, with the stride where
    torchvision has it; Sandler et al., "MobileNetV2", 2018, table 2.
"""

from .builtin_graph import Graph


def add_resnet50(graph: Graph) -> None:
    """Add ResNet-50: bottlenecks of 3, 4, 6 and 3, the stride in the 3x3 convolution."""

    def convolve(name: str, source: str, shape: tuple[int, int, int], stride: int = 1) -> str:
        found = graph.convolution(name, source, shape, stride=stride)
        return graph.add("Relu", f"{name}.relu", [found])

    last = convolve("stem", "image", (3, 64, 7), 2)
    last = graph.add(
        "MaxPool", "stem.pool", [last], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    )
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            at = f"stage{stage + 1}.block{block + 1}"
            stride = 2 if stage > 0 and block == 0 else 1
            branch = convolve(f"{at}.reduce", last, (channels, width, 1))
            branch = convolve(f"{at}.spatial", branch, (width, width, 3), stride)
            branch = graph.convolution(f"{at}.expand", branch, (width, 4 * width, 1), gain=0.5)
            if block == 0:
                shape = (channels, 4 * width, 1)
                last = graph.convolution(f"{at}.shortcut", last, shape, stride=stride, gain=1.0)
            last = graph.add("Add", f"{at}.add", [branch, last])
            last = graph.add("Relu", f"{at}.relu", [last])
            channels = 4 * width
    graph.classifier(last, channels)


def add_mobilenet(graph: Graph, *, is_half: bool) -> None:
    """Add MobileNetV2: inverted residuals round depthwise convolutions.

    Args:
        graph: What to add it to.
        is_half: Half as wide as published, channels in multiples of 8 as published.
    """
    limits = [graph.constant("zero", 0.0), graph.constant("six", 6.0)]

    def convolve(
        name: str, source: str, shape: tuple[int, int, int], stride: int = 1, *, deep: bool = False
    ) -> str:
        found = graph.convolution(name, source, shape, stride=stride, depthwise=deep)
        return graph.add("Clip", f"{name}.relu6", [found, *limits])

    channels = 16 if is_half else 32
    last = convolve("stem", "image", (3, channels, 3), 2)
    stages = (
        # expansion, channels out at full and at half width, blocks, stride of the first
        (1, (16, 8), 1, 1),
        (6, (24, 16), 2, 2),
        (6, (32, 16), 3, 2),
        (6, (64, 32), 4, 2),
        (6, (96, 48), 3, 1),
        (6, (160, 80), 3, 2),
        (6, (320, 160), 1, 1),
    )
    for stage, (expansion, widths, blocks, first_stride) in enumerate(stages, start=1):
        channels_out = widths[is_half]
        for block in range(blocks):
            at = f"stage{stage}.block{block + 1}"
            stride = first_stride if block == 0 else 1
            width = channels * expansion
            branch = last
            if expansion > 1:
                branch = convolve(f"{at}.expand", branch, (channels, width, 1))
            branch = convolve(f"{at}.spatial", branch, (width, width, 3), stride, deep=True)
            joins = stride == 1 and channels == channels_out
            gain = 0.5 if joins else 1.0
            branch = graph.convolution(f"{at}.project", branch, (width, channels_out, 1), gain=gain)
            last = graph.add("Add", f"{at}.add", [branch, last]) if joins else branch
            channels = channels_out
    last = convolve("head", last, (channels, 1280, 1))
    graph.classifier(last, 1280)
