"""Makes what `notebooks/analysis.ipynb` reads: the week of a support desk that never was, and replies for live runs.

`python -m tests.notebooks.make_support_runs [FOLDER]` writes both files, the same each time. Nobody is asked: the
models follow the script below, on a clock that jumps instead of waiting.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
import selectors
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import nbformat

from nbagents import (
    Agent,
    AgentResponse,
    AgentSession,
    BaseChatClient,
    ChatRequest,
    ChatResponseUpdate,
    NBAgentsError,
    RunBudget,
    ToolError,
    Usage,
    note,
    recording,
    run_log,
    save_runs,
    tags,
    tool,
    tool_call,
)
from nbagents.core.content import FunctionCall, TextContent, UsageContent
from nbagents.core.errors import RateLimitError

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
WEEK = "data/support_week.jsonl"
RECORDING = "recordings/analysis.jsonl"

FIRST_DAY = datetime(2026, 3, 2, 8, tzinfo=UTC)
DAYS = 8
LAST_DAY = DAYS - 1  # on which the carrier has a bad day
NEW_PROMPT_FROM = 3  # from then on two conversations of three have prompt v2
HOUSE_MODEL_DAYS = (4, 5)  # on which the writer had a model of the house, of no known price
_ID = re.compile(r"\b([a-z]+)(?:_[a-z]+)*_(?:[0-9a-f]{24}|[0-9]+)\b")

Reply = str | list[str | FunctionCall] | Exception | Callable[[ChatRequest], Any]


class Clock(selectors.DefaultSelector):
    """A clock for an event loop, and all else that asks for the time: where there is nothing to do, it jumps ahead."""

    def __init__(self, start: datetime) -> None:
        super().__init__()
        self.now = start.timestamp()

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout + 1e-6  # what is due is then due, however floats were rounded
        return ready

    @contextmanager
    def running(self) -> Iterator[asyncio.Runner]:
        """Give a runner whose loop has this clock, and let `time` tell it."""
        tell: dict[str, Any] = {name: lambda: self.now for name in ("time", "monotonic", "perf_counter")}
        with (
            mock.patch.multiple("time", **tell),
            asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(self)) as runner,
        ):
            yield runner


@dataclass(frozen=True)
class Pace:
    """How fast a model is under a prompt, and what that costs.

    Attributes:
        first_token: seconds to it.
        per_token: seconds for each further one.
        overhead: tokens that it reads before the conversation: instructions and tools.
        cached: how often they are in the cache, from 0 to 1.
        wordy: how much longer its replies are than those written here.
    """

    first_token: float
    per_token: float
    overhead: int
    cached: float
    wordy: int


PACES = {
    ("gpt-5-mini", "v1"): Pace(0.7, 0.011, 2600, 0.25, 4),
    ("gpt-5-mini", "v2"): Pace(0.6, 0.011, 1750, 0.80, 1),
    ("gpt-5", "v1"): Pace(2.4, 0.024, 900, 0.0, 4),
    ("gpt-5", "v2"): Pace(2.2, 0.024, 900, 0.3, 2),
    ("house-writer", "v1"): Pace(1.1, 0.055, 900, 0.0, 4),
    ("house-writer", "v2"): Pace(1.1, 0.055, 900, 0.0, 2),
}


class Script(BaseChatClient):
    """A model that says what it is told to say, at the pace of a real one, and counts tokens as one does."""

    provider = "openai"
    max_retries = 2

    def __init__(self, model: str, replies: Sequence[Reply], dice: Random, prompt: str = "v2") -> None:
        self.model = model
        self._replies = list(replies)
        self._dice = dice
        self._pace = PACES[model, prompt]
        if model == "house-writer":
            self.provider = "local"

    async def generate(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        """Yield the next reply, in two pieces."""
        reply = self._replies.pop(0)
        if callable(reply):
            reply = reply(request)
        await asyncio.sleep(self._pace.first_token * self._dice.lognormvariate(0, 0.35))
        if isinstance(reply, Exception):
            raise reply
        pieces = [reply] if isinstance(reply, str) else reply
        contents = [TextContent(piece) if isinstance(piece, str) else piece for piece in pieces]
        yield ChatResponseUpdate(contents, role="assistant", model=self.model)
        usage = self._usage(request, pieces)
        await asyncio.sleep((usage.output_tokens or 0) * self._pace.per_token)
        called = any(isinstance(piece, FunctionCall) for piece in pieces)
        yield ChatResponseUpdate(
            (UsageContent(usage),), model=self.model, finish_reason="tool_calls" if called else "stop"
        )

    def _usage(self, request: ChatRequest, pieces: Sequence[str | FunctionCall]) -> Usage:
        read = sum(
            len(message.text) + sum(len(r.result or "") for r in message.results) for message in request.messages
        )
        written = sum(len(piece) if isinstance(piece, str) else 60 for piece in pieces)
        reasoning = 64 * self._dice.randint(2, 6) if self.model == "gpt-5" else 0
        written *= self._pace.wordy
        given = self._pace.overhead + read // 4
        hit = self._dice.random() < self._pace.cached
        return Usage(
            input_tokens=given,
            output_tokens=written // 4 + reasoning,
            cached_input_tokens=given // 128 * 128 if hit else 0,
            reasoning_tokens=reasoning,
        )


# The week ------------------------------------------------------------------------------------------------------------

PARTS = ("chain", "saddle", "inner tube", "brake cable", "bell", "rear light", "pedals", "handlebar tape")
HOW_TO = {
    "torque stem": ("How tight do the bolts of my stem go?", "Five newton metres, with a torque wrench."),
    "oil chain": ("Which oil goes on a new chain?", "A dry one in summer, a wet one in winter; wipe off the rest."),
    "fit pedals": (
        "Can I fit pedals without the special tool?",
        "A 15 mm spanner will do; the left one turns the other way.",
    ),
}
DISLIKES = {
    "helpless": "I can see on the carrier's page that it was delivered.",
    "letter": "Sounds like a form letter.",
    "parcel": "Too many words, I had asked for a day.",
    "manual": "Too many words for a short question.",
}
NO_NEWS = ("503", "did not finish", "Not run")


@dataclass(frozen=True)
class Turn:
    """What a customer asks, and what the models will say."""

    asked: str
    desk: list[Reply]
    writer: list[Reply]
    kind: str


def tools_of(day: int, dice: Random) -> list[Any]:
    """Return the desk's tools, as they were on that day."""

    @tool
    async def find_order(number: int) -> dict[str, Any]:
        """Look an order up."""
        await asyncio.sleep(dice.uniform(0.05, 0.2))
        if number > 9000:
            raise ToolError(f"There is no order {number}.")
        return {"number": number, "part": PARTS[number % len(PARTS)], "paid_eur": 9 + number % 60}

    @tool(timeout=8.0)
    async def track_parcel(number: int) -> str:
        """Ask the carrier where the parcel of an order is."""
        trouble = dice.random()
        limit = 0.7 if day == LAST_DAY else 0.05
        if trouble < limit / 2:
            await asyncio.sleep(60)
        await asyncio.sleep(dice.lognormvariate(0, 0.5))
        if trouble < limit:
            raise ToolError("The carrier's service answered 503.")
        return dice.choice(("in the depot", "on the van", "at the post office", "with the carrier"))

    @tool
    async def search_manual(words: str) -> str:
        """Search the workshop manual."""
        await asyncio.sleep(dice.lognormvariate(0.9, 0.6))
        return HOW_TO[words][1]

    return [find_order, track_parcel, search_manual]


def parcel_turn(dice: Random, prompt: str) -> Turn:
    """Somebody waits for a parcel; where the carrier does not answer, the desk tries again, and again."""
    number = dice.randint(1000, 1999) if dice.random() > 0.05 else 9000 + dice.randint(1, 99)

    def answer(request: ChatRequest) -> Reply:
        last = request.messages[-1].results[-1].result or ""
        helpless = any(words in last for words in NO_NEWS)
        if helpless and request.tools:
            return [tool_call("track_parcel", number=number)]
        if "no order" in last:
            return f"I find no order {number}. Could you look at the number again? It is on your receipt."
        if helpless:
            return "The carrier does not answer me just now. Please try again later."
        more = " Parcels are scanned at every station, so you will hear more soon."
        return f"Your parcel is {last}." + (more if prompt == "v1" else "")

    first: Reply = [tool_call("track_parcel", number=number)]
    if number > 9000:
        first = [tool_call("find_order", number=number)]
    return Turn(f"Where is my order {number}?", [first, *[answer] * 12], [], "parcel")


def manual_turn(dice: Random, prompt: str) -> Turn:
    """Somebody has the part, and now wants to use it."""
    words = dice.choice(list(HOW_TO))
    asked, text = HOW_TO[words]
    more = " So says the manual; please write again if anything is unclear."
    reply = text + (more if prompt == "v1" else "")
    return Turn(asked, [[tool_call("search_manual", words=words)], reply], [], "manual")


def letter_turn(dice: Random, _prompt: str) -> Turn:
    """Something is wrong with an order: the writer words the letter."""
    number = dice.randint(1000, 1999)
    part = PARTS[number % len(PARTS)]
    asks = f"Apologise for a broken {part}; offer a new one or the money."
    letter = f"We are sorry that your {part} arrived broken. A new one, or your money back?"
    script: list[Reply] = [
        [tool_call("find_order", number=number)],
        [tool_call("writer", messages=asks)],
        letter,
    ]
    return Turn(f"The {part} of my order {number} came broken!", script, [letter], "letter")


THANKS = Turn("Thanks!", ["You are welcome. Ride well!"], [], "thanks")
TURNS = (parcel_turn, parcel_turn, parcel_turn, manual_turn, manual_turn, letter_turn)


async def converse(day: int, number: int, dice: Random) -> None:
    """One conversation: a customer asks once to three times."""
    prompt = "v2" if day >= NEW_PROMPT_FROM and number % 3 else "v1"
    session = AgentSession(session_id=f"chat-{day + 1}{number:02d}")
    with tags(prompt=prompt):
        turns = [dice.choice(TURNS)(dice, prompt) for _ in range(dice.choice((1, 1, 2, 2)))]
        for turn in [*turns, THANKS][: dice.choice((2, 3))]:
            response = await answered(turn, day, prompt, session, dice)
            if response is None:
                return
            opine(turn, response, prompt, dice)
            await asyncio.sleep(dice.uniform(20, 90))


async def answered(turn: Turn, day: int, prompt: str, session: AgentSession, dice: Random) -> AgentResponse[Any] | None:
    """Run the desk on one turn; None where the run did not come to its end."""
    writes = "house-writer" if day in HOUSE_MODEL_DAYS else "gpt-5"
    writer = Agent(Script(writes, turn.writer, dice, prompt), name="writer", description="Words a letter.")
    fate = dice.random()
    replies = turn.desk
    if fate < 0.06:  # the service is busy: mostly for a moment, now and then for longer
        busy = RateLimitError("Too many requests.", status=429)
        replies = [*[busy] * (1 if fate < 0.035 else 3), *turn.desk]
    desk = Agent(
        Script("gpt-5-mini", replies, dice, prompt),
        name="desk",
        tools=[*tools_of(day, dice), writer],
        budget=RunBudget(max_steps=3, max_duration_ms=30_000),
    )
    stream = desk.run(turn.asked, stream=True, session=session)
    run = asyncio.ensure_future(stream.get_final_response())
    if fate > 0.975:  # the customer closes the window
        await asyncio.sleep(1.5)
        run.cancel()
    with suppress(NBAgentsError, asyncio.CancelledError):
        return await run
    return None


def opine(turn: Turn, response: AgentResponse[Any], prompt: str, dice: Random) -> None:
    """Some customers say what they think."""
    helpless = "does not answer" in response.text
    if turn is THANKS or dice.random() > (0.8 if helpless else 0.35):
        return
    if dice.random() < (0.1 if helpless else 0.85 if prompt == "v2" else 0.6):
        note(response, thumbs="up")
        return
    why = "helpless" if helpless else turn.kind
    note(response, DISLIKES[why] if helpless or prompt == "v1" else None, thumbs="down")


async def week(clock: Clock, dice: Random) -> None:
    """All conversations, one after the other."""
    for day in range(DAYS):
        opens = FIRST_DAY + timedelta(days=day)
        many = 7 if opens.weekday() >= 5 else 11
        starts = sorted(dice.uniform(0, 10 * 3600) for _ in range(many))
        for number, after in enumerate(starts):
            await asyncio.sleep(max(opens.timestamp() + after - clock.now, 0))
            await converse(day, number, dice)


def write_week(path: Path) -> None:
    """Write the week's runs, with short ids in the place of random ones, and times to the millisecond."""
    run_log().clear()
    clock = Clock(FIRST_DAY)
    with mock.patch("random.random", Random(8).random), clock.running() as runner:
        runner.run(week(clock, Random(20)))
    path.parent.mkdir(parents=True, exist_ok=True)
    save_runs(path)
    run_log().clear()
    numbers: dict[str, count[int]] = {}
    names: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        if match[0] not in names:
            names[match[0]] = f"{match[1]}-{next(numbers.setdefault(match[1], count(1)))}"
        return names[match[0]]

    lines = [json.dumps(_short(json.loads(line)), separators=(",", ":")) for line in path.read_text().splitlines()]
    path.write_text("".join(f"{_ID.sub(named, line)}\n" for line in lines))


def _short(value: Any) -> Any:
    """Round times to the millisecond and leave out tracebacks, which name places of one machine."""
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, list):
        return [_short(item) for item in value]
    if isinstance(value, dict):
        return {name: None if name == "traceback" else _short(item) for name, item in value.items()}
    return value


# The live runs -------------------------------------------------------------------------------------------------------

LETTER = """\
I am sorry that your new tyre came with a hole. A new one leaves our workshop today, at our cost.

Please keep the old one; it makes a fine belt."""
DESK_SAYS: list[Reply] = [
    [tool_call("find_order", number=1042), tool_call("track_parcel", number=1042)],
    "Your chain is **on the van** and should reach you today, so you can ride on Friday.",
    [tool_call("find_order", number=1043)],
    [tool_call("writer", messages="Apologise for a tyre that came with a hole; a new one leaves today, free.")],
    LETTER,
    [tool_call("track_parcel", number=1044)],
    "The carrier does not answer me just now. Please ask me again in an hour.",
]


def live_cells(notebook: Path = NOTEBOOKS / "analysis.ipynb") -> tuple[str, list[str]]:
    """Return the source of the cell that makes the agents, and those of the cells that ask them."""
    cells = [cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    (agents,) = [cell.source for cell in cells if "agents" in cell.metadata.get("tags", ())]
    return agents, [cell.source.partition("\n")[2] for cell in cells if cell.source.startswith("%%recording")]


def write_recording(path: Path) -> None:
    """Write the recording: the notebook's own agents are asked its own questions, and the script above answers."""
    dice = Random(4)
    scripts = {"gpt-5-mini": Script("gpt-5-mini", DESK_SAYS, dice), "gpt-5": Script("gpt-5", [LETTER], dice)}
    agents, questions = live_cells()
    names: dict[str, Any] = {"Agent": Agent, "tool": tool, "tags": tags, "note": note}
    names |= {"OpenAIChatClient": lambda model, **_: scripts[model], "print": lambda *_: None}
    exec(agents, names)
    session = names["desk"].create_session()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with recording(path, "record"), Clock(FIRST_DAY).running() as runner:
        for source in questions:
            if source.startswith("%%agent"):
                asked = source.partition("\n")[2]
                runner.run(names["desk"].run(asked, session=session, stream=True).get_final_response())
            else:
                runner.run(eval(compile(source, "a cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names))
    numbers = count(1)
    text = re.sub(r'"call_\d+"', lambda _: f'"call_{next(numbers)}"', path.read_text())
    path.write_text(text)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else NOTEBOOKS
    write_week(folder / WEEK)
    write_recording(folder / RECORDING)
