"""What slots are centred on and measured by: anchors, locations and units."""
