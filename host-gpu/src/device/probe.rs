//! What a GPU device needs of the machine, and what of that is there. It only looks at files: nothing is opened, loaded
//! or run, so that a broken driver cannot take the server down. A part that is there may still not work.

use std::fs;
use std::path::{Path, PathBuf};

/// Where parts are looked for.
#[derive(Debug, Clone)]
pub struct GpuFolders {
    /// What the usual folders are below; `/` on a machine.
    pub root: PathBuf,
    /// Folders of shared libraries, before the usual ones.
    pub libraries: Vec<PathBuf>,
    /// Folders of CUDA toolkits, before the usual one.
    pub toolkits: Vec<PathBuf>,
}

/// One part that a GPU device needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuPart {
    pub part: &'static str,
    /// What it is for: a sentence.
    pub purpose: &'static str,
    /// Where it is, if it is there.
    pub found: Option<PathBuf>,
}

/// Where systems and containers keep shared libraries.
const LIBRARIES: [&str; 7] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib/wsl/lib",
    "usr/local/nvidia/lib64",
    "usr/local/lib",
];

/// Where a toolkit is when nobody says otherwise.
const TOOLKIT: &str = "usr/local/cuda";

/// Where a toolkit keeps shared libraries.
const TOOLKIT_LIBRARIES: [&str; 3] = ["lib64", "lib", "targets/x86_64-linux/lib"];

/// Where a toolkit keeps headers.
const TOOLKIT_HEADERS: [&str; 2] = ["include", "targets/x86_64-linux/include"];

/// All parts that a GPU device needs, in the order in which a person would install them.
pub fn gpu_parts(folders: &GpuFolders) -> Vec<GpuPart> {
    let GpuFolders { root, libraries, toolkits } = folders;
    let toolkits: Vec<PathBuf> = toolkits.iter().cloned().chain([root.join(TOOLKIT)]).collect();
    let inside = |below: &[&str]| -> Vec<PathBuf> {
        toolkits.iter().flat_map(|toolkit| below.iter().map(|below| toolkit.join(below))).collect()
    };
    let usual = LIBRARIES.iter().map(|folder| root.join(folder));
    let libraries: Vec<PathBuf> =
        libraries.iter().cloned().chain(inside(&TOOLKIT_LIBRARIES)).chain(usual).collect();
    let headers: Vec<PathBuf> =
        inside(&TOOLKIT_HEADERS).into_iter().chain([root.join("usr/include")]).collect();

    let is_there = |path: PathBuf| path.exists().then_some(path);
    let header = |name: &str| headers.iter().find_map(|folder| is_there(folder.join(name)));
    let library = |name: &str| libraries.iter().find_map(|folder| shared_library(folder, name));
    let part = |part, purpose, found| GpuPart { part, purpose, found };
    vec![
        part(
            "NVIDIA driver",
            "The kernel's driver of the card; without it no program sees a GPU.",
            is_there(root.join("proc/driver/nvidia/version")),
        ),
        part(
            "/dev/nvidia0",
            "The card as a device file; a container has it only if it was started with access to the GPU.",
            is_there(root.join("dev/nvidia0")),
        ),
        part(
            "libcuda.so.1",
            "The driver's library, by which programs use the card; it comes with the driver.",
            library("libcuda.so.1"),
        ),
        part(
            "libnvrtc",
            "Compiles the engine's kernels for the card at hand; it comes with the CUDA toolkit.",
            library("libnvrtc.so"),
        ),
        part(
            "libcublas",
            "Matrix products on the card; it comes with the CUDA toolkit.",
            library("libcublas.so"),
        ),
        part("libcudnn", "Convolutions on the card; it is a package of its own.", library("libcudnn.so")),
        part(
            "CUDA headers",
            "What the engine's kernels are compiled against (cuda_runtime.h, cuda_fp16.h); they come with the CUDA \
             toolkit.",
            header("cuda_runtime.h").or_else(|| header("cuda_fp16.h")),
        ),
    ]
}

/// A library of this name, or of this name and any version after it. A folder that cannot be read has none.
fn shared_library(folder: &Path, name: &str) -> Option<PathBuf> {
    let version =
        |file: &str| file.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let files = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    // The shortest, which is the one that programs ask for; links that lead nowhere are none.
    files
        .filter(|path| path.file_name().and_then(|file| file.to_str()).is_some_and(version) && path.exists())
        .min_by_key(|path| path.as_os_str().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(folders: &GpuFolders, part: &str) -> Option<PathBuf> {
        gpu_parts(folders).into_iter().find(|found| found.part == part).unwrap().found
    }

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    fn a_machine_without_a_gpu_lacks_all_and_a_whole_one_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let folders = GpuFolders { root: root.to_owned(), libraries: vec![], toolkits: vec![] };
        assert!(gpu_parts(&folders).iter().all(|part| part.found.is_none()));
        for file in [
            "proc/driver/nvidia/version",
            "dev/nvidia0",
            "usr/lib/x86_64-linux-gnu/libcuda.so.1",
            "usr/local/cuda/lib64/libnvrtc.so.12",
            "usr/local/cuda/lib64/libcublas.so",
            "usr/lib64/libcudnn.so.9.1.0",
            "usr/local/cuda/include/cuda_fp16.h",
        ] {
            touch(&root.join(file));
        }
        let lacking: Vec<_> = gpu_parts(&folders).into_iter().filter(|part| part.found.is_none()).collect();
        assert_eq!(lacking, []);
        assert_eq!(found(&folders, "libnvrtc"), Some(root.join("usr/local/cuda/lib64/libnvrtc.so.12")));
    }

    #[test]
    fn folders_that_were_named_come_first() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for file in ["usr/lib/libcuda.so.1", "mine/libcuda.so.1", "toolkit/include/cuda_runtime.h"] {
            touch(&at(file));
        }
        let folders = GpuFolders {
            root: at(""),
            libraries: vec![at("mine")],
            toolkits: vec![at("toolkit"), at("none")],
        };
        assert_eq!(found(&folders, "libcuda.so.1"), Some(at("mine/libcuda.so.1")));
        assert_eq!(found(&folders, "CUDA headers"), Some(at("toolkit/include/cuda_runtime.h")));
    }

    #[test]
    fn names_that_only_begin_alike_and_links_that_lead_nowhere_are_no_library() {
        let folder = tempfile::tempdir().unwrap();
        touch(&folder.path().join("usr/lib/libcublasLt.so.12"));
        let link = folder.path().join("usr/lib/libcudnn.so");
        std::os::unix::fs::symlink("nowhere", link).unwrap();
        // A file where a folder should be.
        touch(&folder.path().join("usr/lib64"));
        let folders = GpuFolders { root: folder.path().to_owned(), libraries: vec![], toolkits: vec![] };
        assert_eq!(found(&folders, "libcublas"), None);
        assert_eq!(found(&folders, "libcudnn"), None);
    }
}
