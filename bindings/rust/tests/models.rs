//! Networks whose answers Python recorded: `tests/bindings/test_rust.py` makes them, and says where they are.

use std::{env, fs, path::PathBuf, thread};

use tilewright::{DataType, Dimension, Model, TensorView};

fn folder() -> PathBuf {
    env::var_os("TILEWRIGHT_TEST_MODEL")
        .expect("TILEWRIGHT_TEST_MODEL is the folder of model.so, x.f32 and y.f32")
        .into()
}

fn numbers(name: &str) -> Vec<f32> {
    numbers_of(folder().join(name))
}

fn numbers_of(path: PathBuf) -> Vec<f32> {
    let bytes = fs::read(path).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn answer(model: &mut Model, x: &[f32]) -> Vec<f32> {
    model.set_input("x", &TensorView::new(&[x.len() / 192, 3, 8, 8], x).unwrap()).unwrap();
    model.run().unwrap();
    model.output(0).unwrap().values::<f32>().unwrap().to_vec()
}

#[test]
fn answers_have_pythons_bits() {
    let mut model = Model::open(folder().join("model.so")).unwrap();
    assert_eq!(answer(&mut model, &numbers("x.f32")), numbers("y.f32"));
    assert_eq!(model.output(0).unwrap().shape(), [2, 10]);
    assert!(!tilewright::version().is_empty());
}

#[test]
fn models_tell_what_they_take_and_give() {
    let model = Model::open(folder().join("model.so")).unwrap();
    let (inputs, outputs) = (model.inputs().unwrap(), model.outputs().unwrap());
    assert_eq!((inputs.len(), inputs[0].name.as_str(), inputs[0].dtype), (1, "x", DataType::F32));
    let batch = Dimension::Named("batch".into());
    let fixed = |n| Dimension::Fixed(n);
    assert_eq!(inputs[0].shape, [batch.clone(), fixed(3), fixed(8), fixed(8)]);
    assert_eq!(outputs[0].shape, [batch, fixed(10)]);
}

#[test]
fn threads_have_models_of_their_own() {
    let (x, y) = (numbers("x.f32"), numbers("y.f32"));
    let model = Model::open(folder().join("model.so")).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| (model.try_clone().unwrap(), x.clone()))
        .map(|(mut own, x)| thread::spawn(move || (0..20).map(|_| answer(&mut own, &x)).collect::<Vec<_>>()))
        .collect();
    for each in threads {
        assert!(each.join().unwrap().iter().all(|found| *found == y));
    }
}

#[test]
fn mistakes_are_errors_in_words() {
    let mut model = Model::open(folder().join("model.so")).unwrap();
    let says = |result: Result<(), tilewright::Error>, words: &str| {
        let text = result.unwrap_err().to_string();
        assert!(text.contains(words), "{text}");
    };
    let x = vec![0f32; 192];
    says(model.run(), "x");
    says(TensorView::new(&[2, 3, 8, 8], &x).map(drop), "has 384 elements, and 192 were given");
    says(model.set_input("y", &TensorView::new(&[192], &x).unwrap()), "y");
    says(model.set_input("x", &TensorView::new(&[1, 3, 64], &x).unwrap()).and_then(|()| model.run()), "x");
    says(
        model.set_input("x", &TensorView::new(&[1, 3, 8, 8], &vec![0i32; 192]).unwrap()).and_then(|()| model.run()),
        "int32",
    );
    says(Model::open("/nowhere/model.so").map(drop), "/nowhere/model.so");
    says(Model::open("nul\0").map(drop), "zero byte");
    answer(&mut model, &x);
    says(model.output(0).unwrap().values::<f64>().map(drop), "holds F32, and F64 was asked for");
    says(model.output(7).map(drop), "7");
}

#[test]
fn resnet_18_has_pythons_bits() {
    let folder = PathBuf::from(env::var_os("TILEWRIGHT_TEST_RESNET").expect("the folder of ResNet-18"));
    let mut model = Model::open(folder.join("model.so")).unwrap();
    let x = numbers_of(folder.join("x.f32"));
    model.set_input("data", &TensorView::new(&[1, 3, 64, 64], &x).unwrap()).unwrap();
    model.run().unwrap();
    assert_eq!(model.output(0).unwrap().values::<f32>().unwrap(), numbers_of(folder.join("y.f32")));
}
