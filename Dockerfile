# An image for hosts on GKE and for the TensorBoard uploader: Python, JAX for TPUs and tpukit. Code travels with each job,
# so this is built once, and again when what programs import changes:
#   tpu image push
FROM python:3.13.9-slim-bookworm@sha256:b685a4fa58bb19d1814d78a1ec0f0208f351452724f78b20212c984d6e124a34 AS build
COPY . /src
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-deps -r /src/tools/locks/build.txt \
 && pip wheel --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir /wheels /src

FROM python:3.13.9-slim-bookworm@sha256:b685a4fa58bb19d1814d78a1ec0f0208f351452724f78b20212c984d6e124a34
COPY --from=build /wheels /install/wheels
COPY --from=build /src/tools/locks/train.txt /install/
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-deps -r /install/train.txt \
 && pip install --no-cache-dir --disable-pip-version-check --no-index --no-deps /install/wheels/*.whl && rm -rf /install
# Who pods of a job run as.
USER 65532
# checkov:skip=CKV_DOCKER_2: a host runs one program to its end, and JobSet looks at how it ends
