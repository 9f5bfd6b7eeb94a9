"""What the JSON API takes and gives; /api/openapi.json is made from these."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Text = Annotated[str, StringConstraints(max_length=1000)]
Name = Annotated[str, StringConstraints(max_length=200)]


class Problem(BaseModel):
    """Why a request was not answered."""

    detail: str


class RunSummary(BaseModel):
    """A run as lists show it."""

    id: str
    study: str | None = Field(description="id of the study it belongs to")
    name: str = Field(description="name of its folder")
    label: str = Field(description="what people call it: its setting in a study, else its name")
    status: str = Field(description="waiting, running, finished, stopped, failed or unreadable")
    outcome: Literal["trained", "collapsed", "diverged", "plateau"] | None = Field(
        description="how its training ended; null before that"
    )
    objective: str
    model: str
    data: str
    seed: int
    progress: float = Field(description="share of the epochs that is done, 0 to 1")
    epoch: float
    epochs: int
    loss: float | None
    rsum: float | None = Field(description="on test where it is known, else the latest on val")
    on: Literal["test", "val"] | None
    seconds: float | None
    searchable: bool = Field(description="has a checkpoint to search with")
    warnings: list[str]


class StudySummary(BaseModel):
    """A study as lists show it."""

    id: str
    title: str
    claim: str
    runs: int = Field(description="planned")
    started: int
    finished: int = Field(description="to the end, or until they diverged")
    failed: str = Field(description="how runs failed: 3 collapsed, 1 diverged; else empty")


class Overview(BaseModel):
    """Everything the server was given."""

    studies: list[StudySummary]
    runs: list[RunSummary]


class RunDetail(RunSummary):
    """A run with what it recorded."""

    recipe: dict[str, object]
    history: list[dict[str, object]] = Field(description="one entry per evaluation")
    test: dict[str, float | None]
    splits: list[str]


class StudyRow(BaseModel):
    """One setting of a study: mean and standard deviation over seeds."""

    label: str
    seeds: int
    baseline: bool
    cells: dict[str, tuple[float | None, float | None]]
    published: dict[str, tuple[float | None, float | None]]
    against_baseline: str


class StudyDetail(StudySummary):
    """A study's table."""

    metrics: list[str]
    rows: list[StudyRow]
    run_ids: list[str]


class FoundItem(BaseModel):
    """One result of a search."""

    rank: int
    row: int
    score: float = Field(description="similarity to the query")
    probability: float | None = Field(
        description="of being right, as learned on the validation split; null: not known"
    )
    name: str
    captions: list[str]
    right: bool | None = Field(description="known to belong to the query; null: not known")
    picture: str = Field(description="address of the picture; of a caption's picture")


class SearchResult(BaseModel):
    """What one run found."""

    run: str
    label: str
    split: str
    query: str
    kind: Literal["sentence", "picture"]
    images: list[FoundItem]
    captions: list[FoundItem]
    searched_images: int
    searched_captions: int
    milliseconds: float
    sure: float | None = Field(description="from which probability on a hit counts")
    verdict: str = Field(description="in words whether anything fits; empty: not known")
    notes: list[str]
    error: str | None = Field(default=None, description="why this run could not search")


class ParameterInfo(BaseModel):
    """A parameter of an objective, and a slider for it."""

    name: str
    kind: Literal["number", "choice", "yes-no", "text"]
    default: float | bool | str | None
    choices: list[str] | None
    low: float | None
    high: float | None
    step: float | None
    description: str


class ObjectiveInfo(BaseModel):
    """A declared objective."""

    name: str
    paper: str
    description: str
    parameters: list[ParameterInfo]


class BenchRequest(BaseModel):
    """An objective, its parameters, and the batch it is tried on."""

    model_config = ConfigDict(extra="forbid")

    objective: Name = Field(default="", description="by default the first that is declared")
    parameters: dict[Name, bool | float | Name] = Field(default={}, max_length=40)
    run: Name | None = Field(default=None, description="whose model; null: a made-up batch")
    split: Name = "test"
    size: int = Field(default=16, ge=2, le=64, description="images, each with one caption")
    seed: int = Field(default=0, ge=0, le=2**31, description="which batch")


class BenchImage(BaseModel):
    """An image of the batch."""

    name: str
    picture: str | None


class Field2D(BaseModel):
    """What the objective does to one triplet; rows are s-, columns s+."""

    low: float
    high: float
    pull: list[list[float]]
    push: list[list[float]]


class BenchResult(BaseModel):
    """Weights on the batch and the triplet diagram."""

    objective: str = Field(description="its full spec")
    value: float | None = Field(description="the loss")
    images: list[BenchImage]
    captions: list[str]
    similarities: list[list[float]] = Field(description="images x captions")
    i2t: list[list[float]] = Field(description="dL/dS of image queries")
    t2i: list[list[float]] = Field(description="dL/dS of caption queries")
    triplets: list[tuple[float, float]] = Field(description="(s+, hardest s-) of the batch")
    field: Field2D
    drawn: dict[str, str] = Field(description="push and pull as SVG, with the batch's triplets")
    attention: dict[str, dict[str, float | None]]


class DiagramResult(BaseModel):
    """A run's objective as a triplet diagram, with triplets it met while training."""

    objective: str
    field: Field2D
    phases: dict[str, list[tuple[float, float]]]


class Health(BaseModel):
    """The server is up."""

    status: Literal["ok"]
    version: str
