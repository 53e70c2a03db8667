"""Job traces and what runs inside the jobs: SWF, transforms, models, behaviour, applications."""
