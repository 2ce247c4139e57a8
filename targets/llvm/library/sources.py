"""The text files beside a model's object file: its header, build files, and a skeleton of a Rust crate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mirlo.runtime.names import c_comment
from mirlo.targets.llvm.cpus import system_of
from mirlo.targets.llvm.library.description import Description

RUN_TIME = ("mirlo.h", "mirlo_call.h", "mirlo.c", "mirlo.hpp")
"""The files of the run time, which every model shares."""
POOL = "mirlo_pool.o"
"""The thread pool."""
RUN_TIME_FOLDER = Path(__file__).with_name("c")


def run_time_files() -> dict[str, bytes]:
    """Return the C files of the run time by name."""
    return {name: (RUN_TIME_FOLDER / name).read_bytes() for name in RUN_TIME}


def model_header(description: Description) -> str:
    """Return the header of a model: its signature as a comment, and its descriptor."""
    name = description.name
    lines = [
        f"/* {c_comment(line)} */"
        for line in (
            f"Model {name}, compiled by Mirlo for {description.artifact.metadata['triple']}.",
            *_notes(description),
        )
    ]
    return "\n".join(
        [
            *lines, f"#ifndef MIRLO_MODEL_{name.upper()}_H", f"#define MIRLO_MODEL_{name.upper()}_H",
            '#include "mirlo.h"', "#ifdef __cplusplus", 'extern "C" {', "#endif",
            f"extern const mirlo_code {description.symbol};",
            *(f"int {driver}(const mirlo_region *region, DLTensor **tensors, int64_t count);"
              for driver in description.drivers),
            "#ifdef __cplusplus", "}", "#endif", "#endif", "",
        ]
    )  # fmt: skip


def _notes(description: Description) -> list[str]:
    artifact = description.artifact
    notes = description.signature()
    notes.append(f"It uses {', '.join(artifact.metadata['features']) or 'what every such processor has'}.")
    notes += [
        f"It calls the packed function {function.name}: name it in options.functions."
        for function in description.functions if not function.driver
    ]  # fmt: skip
    for driver, regions in description.drivers.items():
        notes.append(
            f"It calls the driver {driver} for {', '.join(regions)}: link it, or name it in options.functions."
        )
    for output, source in artifact.aliases.items():
        notes.append(f"Output {output} may have the memory of {source}, which it then updates in place.")
    if description.weights_bytes and not description.embedded:
        notes.append(f"Its weights are in the file {description.weights_file}: name it in options.weights_path.")
    return notes


def build_files(description: Description, objects: list[str], has_pool: bool) -> Mapping[str, str]:
    """Return the files for CMake, pkg-config and Cargo by name; `objects` are linked by programs."""
    name = description.name
    pool = [POOL] if has_pool else []
    is_windows = system_of(str(description.artifact.metadata["triple"])) == "windows"
    linked = [each for each in objects if not each.endswith(".dll")]  # programs open a DLL
    in_folder = "${CMAKE_CURRENT_LIST_DIR}/"
    run_time = " ".join([*(f"{in_folder}{each}" for each in pool), "Threads::Threads", "${CMAKE_DL_LIBS}"])
    model = " ".join([*(f"{in_folder}{each}" for each in linked), "mirlo"])
    of_system = "-lm" if is_windows else "-lm -ldl -lpthread"
    cmake = f"""# The model `{name}` for CMake: add_subdirectory(this folder), then link with mirlo_{name}.
cmake_minimum_required(VERSION 3.13)
project(mirlo_{name} C)
if(NOT TARGET mirlo)
  find_package(Threads REQUIRED)
  add_library(mirlo STATIC {in_folder}mirlo.c)
  set_target_properties(mirlo PROPERTIES C_STANDARD 99 POSITION_INDEPENDENT_CODE ON)
  target_include_directories(mirlo PUBLIC ${{CMAKE_CURRENT_LIST_DIR}})
  target_link_libraries(mirlo PUBLIC {run_time})
  if(NOT MSVC)
    target_link_libraries(mirlo PUBLIC m)
  endif()
endif()
add_library(mirlo_{name} INTERFACE)
target_include_directories(mirlo_{name} INTERFACE ${{CMAKE_CURRENT_LIST_DIR}})
target_link_libraries(mirlo_{name} INTERFACE {model})
"""
    config = f"""prefix=${{pcfiledir}}
Name: {name}
Description: a model compiled by Mirlo
Version: 1
Cflags: -I${{prefix}}
Requires: mirlo
Libs: {" ".join(f"${{prefix}}/{each}" for each in linked)}
"""
    # A package of its own: `cc` compiles mirlo.c once, however many models a program links.
    of_run_time = f"""prefix=${{pcfiledir}}
Name: mirlo
Description: the run time of models compiled by Mirlo
Version: 1
Cflags: -I${{prefix}}
Libs: {" ".join(f"${{prefix}}/{each}" for each in ["mirlo.c", *pool])} {of_system}
"""
    packages = {f"{name}.pc": config, "mirlo.pc": of_run_time}
    return {"CMakeLists.txt": cmake, **packages, **_crate(description, [*objects, *pool])}


def _crate(description: Description, objects: list[str]) -> dict[str, str]:
    name = description.name
    cargo = f"""[package]
name = "mirlo_{name.lower()}"
version = "0.1.0"
edition = "2021"
build = "build.rs"
links = "mirlo_{name.lower()}"

[lib]
path = "lib.rs"
"""
    listed = ", ".join(f'"{each}"' for each in objects)
    build = _BUILD.replace("OBJECTS", listed).replace("NAME", name)
    signature = "\n".join(f"//! {c_comment(line)}" for line in description.signature())
    artifact = description.artifact
    is_beside = description.weights_bytes and not description.embedded
    lib = (
        _RUST.replace("SIGNATURE", signature)
        .replace("WEIGHTS_FILE_OF_MODEL", f'Some("{description.weights_file}")' if is_beside else "None")
        .replace("INPUT_COUNT", str(len(artifact.inputs)))
        .replace("OUTPUT_COUNT", str(len(artifact.outputs)))
        .replace("NAME", name)
    )
    return {"rust/Cargo.toml": cargo, "rust/build.rs": build, "rust/lib.rs": lib}


_BUILD = """//! Compiles the run time, and makes a library of it and of the model.
use std::path::PathBuf;
use std::process::Command;

fn run(program: &str, default: &str, arguments: &[String]) {
    let name = std::env::var(program).unwrap_or_else(|_| default.into());
    let status = Command::new(&name).args(arguments).status();
    assert!(status.map(|s| s.success()).unwrap_or(false), "'{} {}' failed", name, arguments.join(" "));
}

fn main() {
    let folder = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("..");
    let out = PathBuf::from(std::env::var("OUT_DIR").unwrap());
    let text = |path: PathBuf| path.to_str().expect("the path is not UTF-8").to_string();
    let (object, archive) = (text(out.join("mirlo.o")), text(out.join("libmirlo_run_time_NAME.a")));
    let flags = ["-std=c99", "-O2", "-fPIC", "-c", "-o"].map(String::from);
    run("CC", "cc", &[&flags[..], &[object.clone(), text(folder.join("mirlo.c"))]].concat());
    let mut members = vec!["crs".to_string(), archive, object];
    for each in [OBJECTS] {
        let path = folder.join(each);
        println!("cargo:rerun-if-changed={}", path.display());
        if each.ends_with(".o") {
            members.push(text(path));
        } else {
            println!("cargo:rustc-link-search=native={}", folder.display());
            println!("cargo:rustc-link-lib=dylib=NAME");
        }
    }
    run("AR", "ar", &members);
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=mirlo_run_time_NAME");
    println!("cargo:rustc-link-lib=m");
}
"""

_RUST = """//! The model `NAME`, compiled by Mirlo.
SIGNATURE
#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::path::Path;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DLDataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}
#[repr(C)]
pub struct DLTensor {
    pub data: *mut c_void,
    pub device_type: c_int,
    pub device_id: i32,
    pub ndim: i32,
    pub dtype: DLDataType,
    pub shape: *mut i64,
    pub strides: *mut i64,
    pub byte_offset: u64,
}
#[repr(C)]
struct Code {
    _private: [u8; 0],
}
unsafe impl Sync for Code {}
#[repr(C)]
struct Options {
    size: usize,
    threads: i32,
    function_count: i32,
    weights_path: *const c_char,
    weights: *const c_void,
    others: [*const c_void; 5],
}

/// The file of the weights; None for a model that holds them.
pub const WEIGHTS_FILE: Option<&str> = WEIGHTS_FILE_OF_MODEL;
/// How many tensors the model takes, and how many it gives.
pub const INPUTS: usize = INPUT_COUNT;
pub const OUTPUTS: usize = OUTPUT_COUNT;

extern "C" {
    #[link_name = "mirlo_model_NAME"]
    static CODE: Code;
    fn mirlo_create(
        code: *const Code,
        options: *const Options,
        model: *mut *mut c_void,
        error: *mut c_char,
        bytes: usize,
    ) -> c_int;
    fn mirlo_close(model: *mut c_void);
    fn mirlo_context_create(model: *const c_void, context: *mut *mut c_void) -> c_int;
    fn mirlo_context_destroy(context: *mut c_void);
    fn mirlo_shapes(context: *mut c_void, inputs: *const DLTensor, outputs: *mut DLTensor) -> c_int;
    fn mirlo_run(context: *mut c_void, inputs: *const DLTensor, outputs: *mut DLTensor) -> c_int;
    fn mirlo_message(context: *const c_void) -> *const c_char;
}

/// The model with a context: it serves one call at a time.
pub struct Model {
    model: *mut c_void,
    context: *mut c_void,
}
unsafe impl Send for Model {}

impl Model {
    /// Open the model, whose weights are embedded.
    pub fn new() -> Result<Model, String> {
        match WEIGHTS_FILE {
            Some(name) => Err(format!("the weights are in the file {name}: open the model with Model::with_weights")),
            None => Model::open(None),
        }
    }

    /// Open the model with the file of its weights, `WEIGHTS_FILE` where the crate was made.
    pub fn with_weights(path: impl AsRef<Path>) -> Result<Model, String> {
        let text = path.as_ref().to_str().ok_or("the path of the weights is not UTF-8")?;
        Model::open(Some(CString::new(text).map_err(|_| "the path of the weights holds a zero byte")?))
    }

    fn open(weights: Option<CString>) -> Result<Model, String> {
        let options = Options {
            size: std::mem::size_of::<Options>(),
            threads: 0,
            function_count: 0,
            weights_path: weights.as_ref().map_or(std::ptr::null(), |path| path.as_ptr()),
            weights: std::ptr::null(),
            others: [std::ptr::null(); 5],
        };
        let mut made = Model { model: std::ptr::null_mut(), context: std::ptr::null_mut() };
        let mut text = [0 as c_char; 256];
        unsafe {
            if mirlo_create(&CODE, &options, &mut made.model, text.as_mut_ptr(), text.len()) != 0 {
                return Err(CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned());
            }
            if mirlo_context_create(made.model, &mut made.context) != 0 {
                return Err("there is no memory for a context".into());
            }
        }
        Ok(made)
    }

    /// Fill in the outputs for these inputs, but for their data.
    ///
    /// # Safety
    /// The pointers of the tensors are valid.
    pub unsafe fn shapes(&mut self, inputs: &[DLTensor], outputs: &mut [DLTensor]) -> Result<(), String> {
        require_counts(inputs, outputs)?;
        let status = mirlo_shapes(self.context, inputs.as_ptr(), outputs.as_mut_ptr());
        self.check(status)
    }

    /// Run the model.
    ///
    /// # Safety
    /// The pointers of the tensors are valid.
    pub unsafe fn run(&mut self, inputs: &[DLTensor], outputs: &mut [DLTensor]) -> Result<(), String> {
        require_counts(inputs, outputs)?;
        let status = mirlo_run(self.context, inputs.as_ptr(), outputs.as_mut_ptr());
        self.check(status)
    }

    fn check(&self, status: c_int) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        Err(unsafe { CStr::from_ptr(mirlo_message(self.context)) }.to_string_lossy().into_owned())
    }
}

fn require_counts(inputs: &[DLTensor], outputs: &[DLTensor]) -> Result<(), String> {
    if inputs.len() == INPUTS && outputs.len() == OUTPUTS {
        return Ok(());
    }
    Err(format!(
        "expected {} inputs and {} outputs, found {} and {}",
        INPUTS,
        OUTPUTS,
        inputs.len(),
        outputs.len()
    ))
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe {
            mirlo_context_destroy(self.context);
            mirlo_close(self.model);
        }
    }
}
"""
