"""Raw mlx-lm as a process: what a server is compared with. Commands and answers are JSON lines on stdin and stdout.

    {"prompts": [[ids]], "max_tokens": 64, "sampling": null}       -> {"times": [[seconds]], "cpu": seconds}
    {"prompts": [[ids]], "max_tokens": 1, "known": 1500}            the first `known` tokens were computed before

Times count from the command's arrival; `times` has one a token for each row.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    import mlx.core as mx
    from mlx_lm.generate import BatchGenerator
    from mlx_lm.models.cache import make_prompt_cache
    from mlx_lm.sample_utils import make_sampler
    from mlx_lm.utils import load_model

    model, _ = load_model(Path(sys.argv[1]))

    def run(command: dict[str, Any]) -> dict[str, Any]:
        prompts, sampling, known = command["prompts"], command.get("sampling"), command.get("known", 0)
        caches = None
        if known:
            cache = make_prompt_cache(model)
            model(mx.array(prompts[0][:known])[None], cache=cache)
            mx.eval([layer.state for layer in cache])
            caches, prompts = [cache], [prompts[0][known:]]
        generator = BatchGenerator(model, max_tokens=command["max_tokens"])
        samplers = [make_sampler(**sampling) for _ in prompts] if sampling else None
        times: dict[int, list[float]] = {}
        started, cpu = time.perf_counter(), time.process_time()
        for uid in generator.insert(prompts, caches=caches, samplers=samplers):
            times[uid] = []
        open_rows = len(times)
        while open_rows:
            _, responses = generator.next()
            now = time.perf_counter() - started
            for response in responses:
                times[response.uid].append(now)
                open_rows -= response.finish_reason is not None
        generator.close()
        return {"times": list(times.values()), "cpu": time.process_time() - cpu}

    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
