//! `cargo run --release --example run LIBRARY INPUT OUTPUT`: reads the first input's numbers (float32) from a file,
//! writes the first output's to another, and prints how long runs take.

use std::{env, error::Error, fs, time::Instant};

use tilewright::{Dimension, Model, TensorView};

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<String> = env::args().skip(1).collect();
    let [library, input, output] = paths.as_slice() else {
        return Err("usage: run LIBRARY INPUT OUTPUT".into());
    };
    let mut model = Model::open(library)?;
    let info = model.inputs()?.remove(0);
    let shape: Option<Vec<usize>> =
        info.shape.iter().map(|d| if let Dimension::Fixed(n) = d { Some(*n as usize) } else { None }).collect();
    let bytes = fs::read(input)?;
    let values: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    model.set_input(&info.name, &TensorView::new(&shape.ok_or("its shape is not known")?, &values)?)?;
    let mut least = f64::MAX;
    for _ in 0..10 {
        let start = Instant::now();
        model.run()?;
        least = least.min(start.elapsed().as_secs_f64());
    }
    println!("{:.2} ms", least * 1e3);
    let found: Vec<u8> = model.output(0)?.values::<f32>()?.iter().flat_map(|v| v.to_le_bytes()).collect();
    Ok(fs::write(output, found)?)
}
