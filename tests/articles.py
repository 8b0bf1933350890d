"""What the tests of all studies share: run one once, and check the folder it writes."""

import re
from dataclasses import replace

from butfor.studies.article import write_study


def write_and_keep(study, settings, folder):
    """Write a study's article, check that its progress counts up, and return its experiment."""
    seen, kept = [], []

    def run(*arguments, **options):
        kept.append(study.run(*arguments, **options))
        return kept[0]

    def progress(done, total):
        seen.append((done, total))

    write_study(replace(study, run=run), settings, folder, progress=progress)
    total = seen[0][1]
    assert seen == [(done, total) for done in range(1, total + 1)]
    return kept[0]


def check_article(folder, figures):
    """Check that an article has its files and figures, loads nothing, and shows no NaN."""
    page = (folder / "index.html").read_text()
    for name in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert (folder / name).exists(), name
    assert "http" not in page.replace("http-equiv", "")
    assert not {"nan", "None", "inf"} & set(re.sub(r"<[^>]+>", " ", page).split())
    assert {path.stem for path in folder.glob("figures/*")} == set(figures)
    for name in figures:
        for ending in ("png", "svg", "pdf", "html"):
            assert (folder / "figures" / f"{name}.{ending}").stat().st_size > 1000
