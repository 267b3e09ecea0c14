module tilewright.example/run

go 1.19
