"""Every sampling value of a rollout or an evaluation."""

from dataclasses import dataclass

from gmc.errors import UsageError


@dataclass(frozen=True)
class Sampling:
    """Every sampling value, passed explicitly so that no model's generation_config can change one.

    temperature: 0 is greedy decoding (evaluation only). top_k 0, top_p 1 and min_p 0 mean "off".
    stop: strings that end a response; their tokens stay in the response.
    """

    temperature: float = 1.0
    max_tokens: int = 64
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()

    def require_training_safe(self) -> None:
        """Refuse what makes the importance ratio mean something else than a change of policy.

        Top-p, top-k, min-p and repetition penalties renormalize the distribution, so the ratio is multiplied by the kept
        probability mass. Raises `UsageError` naming the setting.
        """
        truncating = {
            "top_p": self.top_p != 1.0,
            "top_k": self.top_k != 0,
            "min_p": self.min_p != 0.0,
            "repetition_penalty": self.repetition_penalty != 1.0,
        }
        for name, used in truncating.items():
            if used:
                raise UsageError(
                    f"rollout.{name} = {getattr(self, name)}: training rollouts are sampled by temperature alone, because "
                    f"{name} multiplies every importance ratio by the kept probability mass. Remove it (it is allowed in eval)."
                )
        if self.temperature <= 0:
            raise UsageError(f"rollout.temperature = {self.temperature}: training rollouts need a temperature above 0.")
