#!/bin/sh
# The one check of a device (docs/gpu.md): built where there is a toolchain, run where there is a GPU.
#
#   scripts/gpu-check.sh pack         builds the check, and puts it and its models into target/gpu-check
#   scripts/gpu-check.sh run [ARGS]   runs it from there: needs neither a toolchain nor network
#   scripts/gpu-check.sh [ARGS]       run, after pack where there is no pack yet
set -eu
cd "$(dirname "$0")/.."

pack=target/gpu-check
# Bytes of a pack, at most: less than 64 MiB.
most=67108863
models='magika/model.onnx light/resnet50.onnx light/squeezenet.onnx'
optional='ppocr/cls.onnx ppocr/rec.onnx ppocr/det.onnx'

make_pack() {
    for model in $models; do
        [ -f "models/$model" ] || { echo "models/$model is not there: run \`make models\`" >&2; exit 1; }
    done
    "${CARGO:-cargo}" build --release --locked -p weir-benches --bin gpu-check
    rm -rf "$pack.partial"
    mkdir -p "$pack.partial"
    cp target/release/gpu-check "$pack.partial/gpu-check"
    "${STRIP:-strip}" "$pack.partial/gpu-check"
    for model in $models $optional; do
        # The optional ones are rows of the table too: as not run.
        [ -f "models/$model" ] || { echo "left out, because it is not there: models/$model" >&2; continue; }
        mkdir -p "$pack.partial/models/$(dirname "$model")"
        cp "models/$model" "$pack.partial/models/$model"
    done
    bytes=$(find "$pack.partial" -type f -exec cat {} + | wc -c | tr -d ' ')
    if [ "$bytes" -gt "$most" ]; then
        echo "the pack has $bytes bytes, and may have $most" >&2
        exit 1
    fi
    rm -rf "$pack"
    mv "$pack.partial" "$pack"
    echo "$pack: $bytes bytes" >&2
}

# Whether a folder has a shared library of this name, in any version.
has_library() {
    for file in "$1/$2".so*; do
        [ -e "$file" ] && return 0
    done
    return 1
}

# What CUDA needs, from where it usually is, if it is there. What the environment has already goes before it.
find_cuda() {
    wheels=''
    if command -v python3 >/dev/null 2>&1; then
        # CUDA as Python packages; the folder of each is one of theirs.
        wheels=$(python3 -c 'import nvidia; print(next(iter(nvidia.__path__)))' 2>/dev/null || true)
    fi
    for library in libcuda libcudart libnvrtc libcublas libcublasLt libcudnn; do
        for folder in /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib/wsl/lib \
            "${CUDA_HOME:-/usr/local/cuda}/lib64" /usr/local/cuda/lib64 /usr/local/cuda/targets/*/lib \
            /usr/local/cuda-13*/lib64 ${wheels:+"$wheels"/*/lib}; do
            has_library "$folder" "$library" || continue
            case ":${LD_LIBRARY_PATH:-}:" in
            *":$folder:"*) ;;
            *) LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder ;;
            esac
            break
        done
    done
    [ -z "${LD_LIBRARY_PATH:-}" ] || export LD_LIBRARY_PATH
    [ -z "${CUDA_HOME:-}${CUDA_PATH:-}" ] || return 0
    # The kernels are compiled against these headers; without a folder that has both, the engine says what it lacks.
    for folder in /usr/local/cuda /usr/local/cuda-13* ${wheels:+"$wheels"/cu13}; do
        for include in "$folder/include" "$folder"/targets/*/include; do
            [ -f "$include/cuda_fp16.h" ] || continue
            if [ -f "$include/cccl/cuda/std/cstdint" ] || [ -f "$include/cuda/std/cstdint" ]; then
                CUDA_HOME=$folder
                export CUDA_HOME
                return 0
            fi
        done
    done
}

run() {
    [ -x "$pack/gpu-check" ] || { echo "$pack is not there: \`$0 pack\` makes it" >&2; exit 1; }
    find_cuda
    exec "$pack/gpu-check" --models "$pack/models" "$@"
}

case ${1:-} in
pack)
    [ $# -eq 1 ] || { echo "pack takes no arguments" >&2; exit 2; }
    make_pack
    ;;
run)
    shift
    run "$@"
    ;;
*)
    [ -x "$pack/gpu-check" ] || make_pack
    run "$@"
    ;;
esac
