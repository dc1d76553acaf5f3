"""The delays of a live run: followers make the rollouts, and the delays are whatever really happens."""

from gmc.delays.base import Arguments, DelayContext, DelayModel


class LiveDelay(DelayModel):
    """Stands for `gmc train --live` in the settings. Nothing is decided ahead, so there is no model to build."""

    name = "live"
    summary = "whatever it comes to be: any number of gmc rollout --follow make the rollouts (gmc train --live)"
    usage = "live"
    examples = ("live",)
    live = True

    @classmethod
    def parse(cls, arguments: Arguments, context: DelayContext) -> DelayModel:
        arguments.refuse("followers decide live delays as they happen, so there is nothing to simulate; see gmc train --live")

    @classmethod
    def check(cls, arguments: Arguments, context: DelayContext) -> None:
        arguments.expect(0)

    @classmethod
    def less_offline(cls, arguments: Arguments) -> str:
        return "plan more --updates: followers begin with version 0 and move on with the policy"
