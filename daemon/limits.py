"""What the alerts hold a board to: the part of the configuration that only they look at."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, field_validator

Dla = Literal["dla0", "dla1"]


class Limits(BaseModel):
    """``limits:``; each is a metric beside the figure that it limits, and none is a default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    power_watts: PositiveFloat | None = Field(
        None, description="budget of the module, as the mean of minutes"
    )
    dla_busy_ratio: dict[Dla, float] = Field(
        default_factory=dict, description="what a DLA core should be busy at least, by core"
    )

    @field_validator("dla_busy_ratio")
    @classmethod
    def _are_shares(cls, value: dict[Dla, float]) -> dict[Dla, float]:
        for core, ratio in value.items():
            if not 0 < ratio <= 1:
                raise ValueError(f"{core}: a share of time is above 0 and at most 1")
        return value
