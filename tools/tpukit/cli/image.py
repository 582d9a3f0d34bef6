"""`tpu image`: the container image that jobs run in."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from tpukit.core.errors import Invalid, Problem


@click.group("image")
def command() -> None:
    """Build the image that jobs on GKE run in: Python, JAX and what programs import. Code travels with each job.

    \b
    Examples:
      tpu image push                     build the Dockerfile of this folder; jobs run in it from now on
      tpu image push docker --name data  another folder, under another name
      tpu image push --dry-run           the command line, and nothing else
      tpu image push --file deploy/base/Dockerfile --name tpu-provisioner --keep-default
    """


@command.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), default=".")
@click.option("--file", "dockerfile", default="Dockerfile", show_default=True, help="Dockerfile, below the folder.")
@click.option("--name", default="train", show_default=True, help="Name of the image.")
@click.option("--tag", help="Tag of the image (default: the time).")
@click.option("--repository", help="REGION-docker.pkg.dev/PROJECT/NAME (default: the setting repository).")
@click.option("--keep-default", is_flag=True, help="Do not change the setting image.")
@click.option("--dry-run", is_flag=True, help="Print the command line without running it.")
def push(
    folder: Path,
    dockerfile: str,
    name: str,
    tag: str | None,
    repository: str | None,
    keep_default: bool,
    dry_run: bool,
) -> None:
    """Build an image with Cloud Build, push it, and use it for jobs from then on.

    Jobs refer to it by its digest: the same job runs in the same image, wherever the tag moves.
    """
    from tpukit.cluster import images
    from tpukit.jobs.spec import settings
    from tpukit.jobs.spec.fields import IMAGE
    from tpukit.jobs.spec.settings import Settings

    known = repository or settings.load().repository
    if not known:
        hint = f"`tpu cluster up` creates one and writes it to your settings; or {settings.hint('repository')}"
        raise Invalid(Problem("--repository", "no repository is given, and the setting `repository` is not set", hint))
    target = images.Repository(str(Settings.from_json({"repository": known}).repository))
    tag = tag or datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    image = f"{target.url}/{name}:{tag}"
    if not (IMAGE.form and IMAGE.form.fits(image)):
        raise Invalid(Problem("--name", f"{image} is not the name of an image", "write small letters, digits and -"))
    images.check(folder, dockerfile)
    if dry_run:
        click.echo(f"# tpu writes the build of {image} to {images.config_file()}")
        click.echo(images.submit(target, folder, images.config_file()))
        return
    made = images.push(target, folder, dockerfile, name, tag, _say)
    if not keep_default:
        settings.save({"image": made})
        _say(f"jobs run in {name}:{tag} from now on ({settings.path()})")
    click.echo(made)


def _say(text: str) -> None:
    click.echo(text, err=True)
