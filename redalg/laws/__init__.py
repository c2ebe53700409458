"""The laws a plan rests on, stated and tested before a form leaves the engine."""
