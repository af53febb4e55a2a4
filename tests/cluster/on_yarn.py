"""The job on YARN: by the command while a container is killed, and by spark-submit in both of its ways.

    python -m tests.cluster.on_yarn FOLDER ARCHIVE

``FOLDER`` is that of the cluster (yarn.py).  Executors get all packages from the archive, and so does the driver where
YARN starts it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark

from tests.cluster.job import FILES, JOB, command, compare, run, tables, write_defaults
from tests.cluster.lake import ROOT, open_store, write_streams
from tests.cluster.session import spark_settings
from tests.cluster.yarn import kill_executor

_VARIABLES = {"SPARK_CONF_DIR": "conf", "PYSPARK_PYTHON": "./environment/bin/python"}
_SCRIPT = """
import sys
from pathlib import Path
import watersmeet
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Started

session = watersmeet.connect(workspace=sys.argv[1] + "/workspace")
for result in session.run(Path("job.sql").read_text(), QueryMode.BOUNDED, checkpoint=sys.argv[1] + "/checkpoints"):
    if isinstance(result, Started):
        assert result.query.wait(900)
session.stop()
"""


def settings(folder: str, archive: str) -> dict[str, str]:
    """Settings of Spark for this small cluster."""
    spark = Path(pyspark.__file__).parent
    return {
        **spark_settings(),
        "spark.archives": f"{archive}#environment",
        "spark.yarn.jars": f"local:{spark}/jars/*",
        "spark.yarn.stagingDir": f"file:{folder}/staging",
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": "./environment/bin/python",
        "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.yarn.am.memory": "384m",
        "spark.driver.memory": "700m",
        "spark.executor.instances": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "600m",
        "spark.executor.memoryOverhead": "700m",
        "spark.sql.shuffle.partitions": "2",
    }


def submit(name: str, deploy_mode: str) -> None:
    """Run the job by spark-submit, to a folder of its own."""
    Path("job.sql").write_text(JOB.replace(f"{ROOT}/out/paired", f"{ROOT}/out/{name}"))
    Path("job.py").write_text(_SCRIPT)
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    words = [
        program,
        "--master",
        "yarn",
        "--deploy-mode",
        deploy_mode,
        "--files",
        "job.sql",
        "job.py",
        f"{ROOT}/{name}",
    ]
    # the driver of the client has its own Python
    run(words, {**_VARIABLES, **({"PYSPARK_DRIVER_PYTHON": sys.executable} if deploy_mode == "client" else {})})


def main(folder: str, archive: str) -> int:
    """Run the job in three ways; return 1 if an answer is wrong."""
    store = open_store()
    write_streams(store, tables(), FILES)
    Path("environment").symlink_to(sys.prefix)
    write_defaults(settings(folder, archive))
    killed: list[int] = []
    run(command(f"{ROOT}/team"), _VARIABLES, lambda: killed.append(kill_executor(Path(folder))))
    wrong = compare(store)
    print(f"killed: {bool(sum(killed))}", flush=True)
    submit("by_client", "client")
    wrong += compare(store, "by_client")
    submit("by_cluster", "cluster")
    wrong += compare(store, "by_cluster")
    return min(wrong + (not sum(killed)), 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
