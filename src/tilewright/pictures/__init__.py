"""Pictures of programs: Relay graphs with the regions of external compilers, and schedules, as SVG or DOT."""
